"""The playground: its texts are the API's, it needs only a keyboard, it loads nothing from elsewhere, and everyone can
use it."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
QUESTION = "Write the numbers from one to thirty as words, one on each line. Übung: 日本."
TIMEOUT_S = 60
TIMEOUT_MS = 60_000


def answer_of(server_url: str, question: str, max_tokens: int) -> str:
    """Returns the text that the API gives for a question."""
    body = {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": max_tokens, "seed": 1}
    request = urllib.request.Request(f"{server_url}/v1/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        text: str = json.load(response)["choices"][0]["message"]["content"]
    return text


def ask(page: Page, question: str, max_tokens: int = 120) -> None:
    """Asks, and waits for the end of the answer."""
    page.get_by_label("Your message").fill(question)
    page.get_by_label("Most tokens").fill(str(max_tokens))
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.get_by_role("status")).to_have_text("The answer is complete.", timeout=TIMEOUT_MS)


def test_the_text_is_the_apis_and_accepted_drafts_are_marked(page: Page, server_url: str) -> None:
    expect(page.locator("#model")).to_contain_text("smollm2-135m")
    expected = answer_of(server_url, QUESTION, 120)  # the suffix drafter can copy from this answer afterwards
    ask(page, QUESTION)
    text = page.locator("#answer").evaluate("element => element.textContent")
    assert text == expected
    marked = page.locator("#answer mark").all_text_contents()
    assert 0 < len("".join(marked)) < len(text)


def test_both_speeds_are_shown_and_the_texts_are_compared(page: Page) -> None:
    ask(page, QUESTION)
    assert float(page.locator("#drafted-speed").inner_text()) > 0
    assert page.locator("#plain-speed").inner_text() == "-"
    page.get_by_role("button", name="Ask again without drafts").click()
    expect(page.locator("#verdict")).to_have_text("Both texts are the same.", timeout=TIMEOUT_MS)
    assert float(page.locator("#plain-speed").inner_text()) > 0
    assert page.locator("#plain-tokens").inner_text() == page.locator("#drafted-tokens").inner_text()


def test_a_keyboard_is_enough(page: Page) -> None:
    def focused() -> str:
        return str(page.evaluate("document.activeElement.id"))

    reached = []
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.append(focused())
    assert reached[:5] == ["prompt", "temperature", "limit", "key", "ask"]
    assert "answer" in reached
    page.locator("#prompt").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("Say hello.")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("status")).to_have_text("The answer is complete.", timeout=TIMEOUT_MS)
    assert page.locator("#answer").inner_text() != ""


def test_escape_stops_an_answer(page: Page) -> None:
    page.get_by_label("Most tokens").fill("4000")
    page.get_by_label("Your message").fill("Tell a very long story about a lighthouse.")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#answer")).not_to_be_empty(timeout=TIMEOUT_MS)
    page.keyboard.press("Escape")
    expect(page.get_by_role("status")).to_have_text("Stopped.")
    expect(page.get_by_role("button", name="Ask", exact=True)).to_be_enabled()


def test_an_error_is_shown(page: Page) -> None:
    page.get_by_label("Your message").fill("far " * 20_000)
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("Error: the prompt has", timeout=TIMEOUT_MS)


def test_nothing_is_loaded_from_elsewhere(browser: Browser, server_url: str) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        urls: list[str] = []
        faults: list[str] = []
        page.on("request", lambda request: urls.append(request.url))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.goto(server_url)
        ask(page, "Say hello.", 16)
        assert [url for url in urls if not url.startswith(f"{server_url}/")] == []
        assert {f"{server_url}/playground/app.js", f"{server_url}/playground/style.css"} < set(urls)
        assert faults == []


def test_axe_finds_nothing_serious(browser: Browser, server_url: str) -> None:
    for scheme in ("light", "dark"):
        with browser.new_context(bypass_csp=True, color_scheme=scheme) as context:
            page = context.new_page()
            page.goto(server_url)
            ask(page, "Say hello.", 16)
            page.add_script_tag(path=AXE)
            violations = page.evaluate("async () => (await axe.run()).violations")
            serious = [one for one in violations if one["impact"] in ("serious", "critical")]
            assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in serious] == []
