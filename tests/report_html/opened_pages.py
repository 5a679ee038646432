"""A page that is open in a browser, and what goes wrong on it."""

from pathlib import Path
from typing import Any


class Opened:
    """A page with all that went wrong on it."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.faults: list[str] = []
        self.requests: list[str] = []
        self.page = browser.new_page(**{"viewport": {"width": 1360, "height": 900}, **options})
        self.page.set_default_timeout(10_000)
        self.page.on("console", lambda said: self.faults.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.faults.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", timeout=30_000)

    def run(self, code: str) -> Any:
        return self.page.evaluate(code)

    @property
    def selected(self) -> str | None:
        return self.run("mezzoPage.drawing.selected?.name ?? null")

    def details(self) -> str:
        return self.page.inner_text("#details")

    def click_box(self, name: str) -> None:
        """Click the middle of a box that is drawn, by its name."""
        where = self.run(f"""(() => {{
            const drawing = mezzoPage.drawing;
            const box = [...drawing.layout.places.keys()].find((one) => one.name === {name!r});
            return drawing.cy.getElementById(box.id).renderedPosition();
        }})()""")
        self.page.locator("#drawing").click(position=where)

    def close(self) -> None:
        """Nothing may have gone wrong, and nothing may have been asked for but the page itself."""
        faults, asked = self.faults, [url for url in self.requests[1:] if not url.startswith(("data:", "blob:"))]
        self.page.close()
        assert faults == []
        assert asked == []
