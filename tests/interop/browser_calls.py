"""Drive a real browser that shows a dashboard; run in the environment of the browser's driver.

python browser_calls.py BROWSER FOLDER       reads lines of JSON, answers each with one

    {"do": "open", "url": ..., "width": 1280, "theme": "dark"}
    {"do": "wait", "in": "#nodes-table", "for": "silent"}        within a minute
    {"do": "press", "keys": ["2", "t"]}
    {"do": "look"}                     text of the page, overflow, focus, theme, errors so far
    {"do": "picture", "name": ...}
"""

import json
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

WITHIN_MS = 60_000
DRAWN = """() => [...document.querySelectorAll('.chart canvas')].map((canvas) => {
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
})"""


class Browser:
    """Drive one page at a time and collect the errors of all pages."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self._browser = browser
        self._folder = folder
        self._page: Page | None = None
        self._errors: list[str] = []

    def answer(self, call: dict[str, Any]) -> Any:
        return getattr(self, call.pop("do"))(**call)

    def open(self, url: str, width: int, theme: str) -> int:
        if self._page is not None:
            self._page.context.close()
        self._errors.clear()
        size = {"width": width, "height": 900}
        self._page = self._browser.new_context(viewport=size, color_scheme=theme).new_page()
        self._page.on("console", lambda each: self._errors.append(each.text))
        self._page.on("pageerror", lambda each: self._errors.append(str(each)))
        response = self._page.goto(url)
        if response.status == 200:
            self._page.wait_for_selector(".card", timeout=WITHIN_MS)
        return response.status

    def wait(self, **call: str) -> bool:
        place = self._page.locator(call["in"]).filter(has_text=call["for"])
        place.first.wait_for(timeout=WITHIN_MS)
        return True

    def press(self, keys: list[str]) -> bool:
        for key in keys:
            self._page.keyboard.press(key)
        return True

    def look(self) -> dict[str, Any]:
        page = self._page
        return {
            "url": page.url,
            "text": page.inner_text("body"),
            "wide": page.evaluate("document.documentElement.scrollWidth"),
            "focus": page.evaluate("document.activeElement.textContent"),
            "theme": page.evaluate("document.documentElement.dataset.theme ?? ''"),
            "ground": page.evaluate("getComputedStyle(document.body).backgroundColor"),
            "hues": page.evaluate(DRAWN),
            "cookies": page.evaluate("document.cookie"),
            "errors": self._errors,
        }

    def picture(self, name: str) -> bool:
        self._page.screenshot(path=self._folder / name, full_page=True)
        return True


def main() -> None:
    path, folder = sys.argv[1:]
    with sync_playwright() as driver:
        # Root's browser has no sandbox in a container; the page is Headrace's own.
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        here = Browser(browser, Path(folder))
        for line in sys.stdin:
            print(json.dumps(here.answer(json.loads(line))), flush=True)
        browser.close()


main()
