// Asks the server through its own API, and shows which tokens were drafted and how fast the answer came.
"use strict";

const byId = (id) => document.getElementById(id);
const asked = { body: null, text: "" };
let controller = null;

function requestBody() {
  return {
    model: "default",
    messages: [{ role: "user", content: byId("prompt").value }],
    temperature: Number(byId("temperature").value),
    max_tokens: Number(byId("limit").value),
    seed: 1,
    stream: true,
    stream_options: { include_usage: true, include_drafted: true },
    logprobs: true,
  };
}

function requestHeaders() {
  const key = byId("key").value;
  return { "content-type": "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) };
}

// Yields the objects of a stream of server-sent events.
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    const blocks = held.split("\n\n");
    held = blocks.pop();
    for (const block of blocks) {
      if (block.startsWith("data: ") && block !== "data: [DONE]") yield JSON.parse(block.slice(6));
    }
  }
}

// Shows tokens as far as they are part of the answer's text; those of a draft are marked. The token that ends an answer
// is not part of it. Bytes that are no whole character wait for the next token.
class AnswerView {
  constructor(element) {
    this.element = element;
    this.decoder = new TextDecoder();
    this.waiting = [];
    this.length = 0;
    element.replaceChildren();
  }

  add(tokens) {
    for (const token of tokens) {
      const text = this.decoder.decode(new Uint8Array(token.bytes), { stream: true });
      if (text) this.waiting.push({ text, isDrafted: token.drafted });
    }
  }

  showUpTo(length) {
    while (this.waiting.length && this.length + this.waiting[0].text.length <= length) {
      const { text, isDrafted } = this.waiting.shift();
      this.length += text.length;
      this.element.append(isDrafted ? marked(text) : text);
    }
  }
}

function marked(text) {
  const element = document.createElement("mark");
  element.textContent = text;
  return element;
}

// Asks, and returns the text, the number of tokens, and the tokens per second after the first chunk.
async function ask(body, view) {
  controller = new AbortController();
  const response = await fetch("/v1/chat/completions", {
    method: "POST",
    headers: requestHeaders(),
    body: JSON.stringify(body),
    signal: controller.signal,
  });
  if (!response.ok) throw new Error((await response.json()).error.message);
  const found = { text: "", numTokens: 0 };
  let first = null;
  let numFirst = 0;
  for await (const event of eventsOf(response)) {
    if (event.error) throw new Error(event.error.message);
    const choice = event.choices[0];
    if (!choice) continue;
    const tokens = choice.logprobs ? choice.logprobs.content : [];
    if (tokens.length) {
      found.numTokens += tokens.length;
      if (first === null) [first, numFirst] = [performance.now(), found.numTokens];
      if (view) view.add(tokens);
    }
    found.text += choice.delta.reasoning_content || choice.delta.content || "";
    if (view) view.showUpTo(found.text.length);
  }
  const seconds = (performance.now() - first) / 1000;
  found.speed = found.numTokens > numFirst && seconds > 0 ? (found.numTokens - numFirst) / seconds : null;
  return found;
}

function show(mode, found) {
  byId(`${mode}-tokens`).textContent = String(found.numTokens);
  byId(`${mode}-speed`).textContent = found.speed === null ? "-" : found.speed.toFixed(1);
}

// Runs one question while the buttons show that it runs, and reports an error as a message.
async function run(work) {
  const answer = byId("answer");
  const buttons = { ask: true, compare: true, stop: false };
  for (const [id, isDisabled] of Object.entries(buttons)) byId(id).disabled = isDisabled;
  answer.setAttribute("aria-busy", "true");
  byId("status").textContent = "The model answers.";
  try {
    await work(answer);
    byId("status").textContent = "The answer is complete.";
  } catch (error) {
    byId("status").textContent = error.name === "AbortError" ? "Stopped." : `Error: ${error.message}`;
  } finally {
    answer.setAttribute("aria-busy", "false");
    byId("ask").disabled = false;
    byId("compare").disabled = asked.body === null;
    byId("stop").disabled = true;
  }
}

async function askWithDrafts(answer) {
  const body = requestBody();
  byId("verdict").textContent = "";
  for (const id of ["drafted-tokens", "drafted-speed", "plain-tokens", "plain-speed"]) byId(id).textContent = "-";
  const found = await ask(body, new AnswerView(answer));
  if (answer.textContent !== found.text) answer.textContent = found.text;
  asked.body = body;
  asked.text = found.text;
  show("drafted", found);
}

async function askWithoutDrafts() {
  const found = await ask({ ...asked.body, speculation: { mode: "off" } }, null);
  show("plain", found);
  const isEqual = found.text === asked.text;
  byId("verdict").textContent = isEqual ? "Both texts are the same." : "The texts differ: please report this.";
}

async function describeModel() {
  try {
    const { data } = await (await fetch("/v1/models", { headers: requestHeaders() })).json();
    byId("model").textContent = `The model is ${data[0].id}.`;
  } catch (error) {
    byId("model").textContent = "The server does not answer.";
  }
}

byId("question").addEventListener("submit", (event) => {
  event.preventDefault();
  run(askWithDrafts);
});
byId("compare").addEventListener("click", () => run(askWithoutDrafts));
byId("stop").addEventListener("click", () => controller && controller.abort());
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.ctrlKey && !byId("ask").disabled) byId("question").requestSubmit();
  if (event.key === "Escape" && controller) controller.abort();
});
describeModel();
