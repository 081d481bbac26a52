// Asks a server through OpenAI's JavaScript client and prints what a user of the client gets, as JSON.
// node openai_node.mjs URL FUNCTION BODY: FUNCTION is one of those in `ways`, BODY the fields of a request.

import OpenAI from "openai";

const [url, way, text] = process.argv.slice(2);
const completions = new OpenAI({ baseURL: url, apiKey: "unused", maxRetries: 0 }).chat.completions;
const body = JSON.parse(text);

const ways = {
  async create() {
    return (await completions.create(body)).choices[0];
  },

  async parse() {
    return (await completions.parse(body)).choices[0];
  },

  /** Returns the stream's events added up, and the choice that the helper makes of them. */
  async stream() {
    const added = { content: "", arguments: "" };
    const stream = completions.stream(body);
    stream.on("content.delta", (event) => (added.content += event.delta));
    stream.on("tool_calls.function.arguments.delta", (event) => (added.arguments += event.arguments_delta));
    const [choice] = (await stream.finalChatCompletion()).choices;
    return { ...added, choice };
  },

  async chunks() {
    const chunks = [];
    for await (const chunk of await completions.create({ ...body, stream: true })) {
      chunks.push(chunk);
    }
    return chunks;
  },

  /** Runs the only tool as a function that always returns `result`; ends after two answers of the model. */
  async runTools() {
    const { result, ...fields } = body;
    const given = [];
    const run = (place) => {
      given.push(place);
      return result;
    };
    const tool = { type: "function", function: { ...body.tools[0].function, parse: JSON.parse, function: run } };
    const runner = completions.runTools({ ...fields, tools: [tool] }, { maxChatCompletions: 2 });
    await runner.done();
    return { given, messages: runner.messages };
  },

  /** Returns the error that the request ends with. */
  async fail() {
    try {
      await completions.create(body);
    } catch (error) {
      return { status: error.status, param: error.param, code: error.code };
    }
    throw new Error("the server accepted the request");
  },
};

console.log(JSON.stringify(await ways[way]()));
