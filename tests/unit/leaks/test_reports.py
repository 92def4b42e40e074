"""The report in its forms: golden text, JSON and HTML, and what reads them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import lifetimes
from lifetimes import Lifetime
from lifetimes.leaks import Report, collect, diff, group, warn_below
from lifetimes.leaks.document import as_document, as_json, from_document, load, save
from lifetimes.leaks.page import as_html, save_html
from lifetimes.leaks.reasons import Reason
from lifetimes.leaks.reports import worth_explaining
from lifetimes.leaks.snapshots import of_rows
from lifetimes.leaks.text import as_text, difference_renderable, renderable
from tests.unit.leaks.fixed import ROWS, fixed_report, large_report

GOLDEN = Path(__file__).parent / "golden"
RENEW = bool(os.environ.get("RENEW_GOLDEN"))
"""Set it to write the golden files anew, then look at the difference."""


def check(name: str, text: str) -> None:
    path = GOLDEN / name
    if RENEW:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def stripped(page: str) -> str:
    """The page without style and script, which are files of their own."""
    page = re.sub(r"<style>.*?</style>", "<style></style>", page, flags=re.DOTALL)
    return re.sub(r"<script>.*?</script>", "<script></script>", page, flags=re.DOTALL)


def test_golden_text() -> None:
    text = as_text(renderable(fixed_report()))
    assert max(map(len, text.splitlines())) <= 80
    check("report.txt", text)


def test_golden_text_of_a_difference() -> None:
    report = fixed_report()
    before = report.snapshot.without([7, 8])
    check("difference.txt", as_text(difference_renderable(diff(before, report.snapshot))))


def test_golden_json() -> None:
    check("report.json", json.dumps(as_document(fixed_report()), indent=1) + "\n")


def test_every_field_of_the_json_is_on_its_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference-report.md").read_text()
    document = as_document(fixed_report())
    parts = [document, document["snapshot"], document["recording"], *document["reasons"][:1]]
    assert [field for part in parts for field in part if f"`{field}`" not in page] == []


def test_golden_html() -> None:
    check("page.html", stripped(as_html(fixed_report())))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_text_keeps_to_its_width(width: int) -> None:
    assert max(map(len, as_text(renderable(fixed_report()), width).splitlines())) <= width


def test_json_loads_back(tmp_path: Path) -> None:
    report = fixed_report()
    save(report, tmp_path / "report.json")
    again = load(tmp_path / "report.json")
    assert as_json(again) == as_json(report)
    assert list(again.snapshot) == ROWS
    assert again.leaks == report.leaks
    assert again.recording is not None
    assert again.recording.peak == report.recording.peak  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": "something else"}, "no report"),
        ({"version": 2}, "version 2"),
        ({"snapshot": {}}, "damaged"),
        ({"reasons": [{"key": 1}]}, "damaged"),
        ({"recording": {"sites": 1}}, "damaged"),
        ({"leaked": 7}, "damaged"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(as_document(fixed_report()) | change))
    with pytest.raises(ValueError, match=says) as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "nonsense", '{"schema": "lifetimes.leaks"}', "7"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"other\.json"):
        load(path)


class Links(HTMLParser):
    """Everything in a page that would load something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href", "action", "data", "srcset") and value and value != "data:,":
                self.found.append(f"{tag} {name}={value}")


def test_the_page_loads_nothing() -> None:
    page = as_html(fixed_report())
    links = Links()
    links.feed(page)
    assert links.found == []
    assert not re.findall(r"\b(?:https?|ftp|ws)s?://|@import|\bfetch\(|XMLHttpRequest|url\(", page)
    assert "default-src 'none'" in page


def test_names_cannot_break_out_of_the_page() -> None:
    page = as_html(fixed_report())
    assert "</script><b>" not in page
    document = page.split('id="document">')[1].split("</script>")[0]
    assert from_document(json.loads(document)).snapshot[5].label == "</script><b>"


def test_a_large_report_is_short() -> None:
    rows = [row for number in range(100) for row in [ROWS[2]]]
    text = as_text(renderable(collect(rows, explained=0)))
    assert "100 x array" in text
    assert len(text.splitlines()) < 12


def test_holders_that_differ_in_a_number_are_told_once() -> None:
    rows = [replace(ROWS[2], key=100 + number) for number in range(30)]
    reasons = {
        row.key: Reason(row.key, row.name, "closure", f"kept[{at}] -> closure variable 'x' of f")
        for at, row in enumerate(rows[:20])
    }
    reasons[101] = Reason(101, "", "global", "other")
    text = as_text(renderable(Report(of_rows(rows), reasons)))
    assert text.count("closure variable") == 1
    assert (
        "held by kept[0] -> closure variable 'x' of f (closure)\n            and 18 like this one\n            other (global)"
        in text
    )
    assert "            10 more were not looked at\n" in text


def test_what_is_known_without_looking_further_is_told_of_all() -> None:
    rows = [ROWS[2], replace(ROWS[2], key=20), replace(ROWS[2], key=21, pins=2)]
    assert "    held by 2 by its handle; 1 by its handle, 2 pins\n" in as_text(renderable(collect(rows, explained=0)))
    assert "    held by its handle\n" in as_text(renderable(collect(rows[:2], explained=0)))


def test_the_largest_of_each_line_is_explained_before_a_second_of_any() -> None:
    assert worth_explaining(ROWS, 4) == [4, 7, 11, 1]
    assert set(worth_explaining(ROWS)) == {row.key for row in ROWS}
    assert len(group(ROWS, "stack")) == 3


def test_what_is_alive_below_something_is_told_before_it_is_closed(lines: None) -> None:
    """BUG-110 (rapidsai/rmm#1314): a reset lists what users still hold, and touches only its own."""
    with lifetimes.open("sim", memory_limit="1MiB") as one, lifetimes.open("sim", memory_limit="1MiB") as other:
        held, view = one.zeros(10, label="held"), None
        view = held[2:]
        elsewhere = other.zeros(10, label="elsewhere")
        with pytest.warns(lifetimes.LeakWarning) as told:
            rows = warn_below(one)
        assert [row.label for row in rows] == ["held", "held"]
        assert f"{Path(__file__).name}:" in str(told[0].message)
        assert "elsewhere" not in str(told[0].message)
        one.close()
        assert held.closed
        assert view.closed
        assert elsewhere.numpy().sum() == 0
        assert warn_below(one) == []
        one.close()


def test_nothing_below_is_not_worth_a_warning() -> None:
    assert warn_below(Lifetime("x")) == []


# In a browser, where there is one.

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SEES = """
<script>
const out = {errors: window.failed || []};
const all = (selector) => [...document.querySelectorAll(selector)];
const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
out.tiles = all(".tile").map((each) => each.innerText.split("\\n"));
out.rows = all("tr.row").map((each) => each.cells[0].innerText.trim());
out.legend = all("#legend button").map((each) => each.title);
press("l"); out.alive = all("tr.row").length;
press("g"); out.by = document.getElementById("table-by").value;
press("p"); out.moment = all("#moments button[aria-pressed=true]").map((each) => each.textContent);
out.peak = document.getElementById("count").textContent;
const search = document.getElementById("search");
press("/"); out.focus = document.activeElement.id;
search.value = "scratch"; search.dispatchEvent(new Event("input"));
out.found = all("tr.row").map((each) => each.cells[0].innerText.trim());
if (out.found.length) all("tr.row")[0].click();
out.details = all(".details").length;
all("#heads button")[1].click(); out.sorted = all("th[aria-sort=descending]").map((each) => each.innerText.trim());
press("t"); search.blur(); press("t"); out.theme = document.documentElement.dataset.theme;
const plot = document.getElementById("plot"), tip = document.getElementById("tip");
if (plot.clientWidth) {
  const place = plot.getBoundingClientRect();
  const at = (share) => ({clientX: place.left + share * place.width, clientY: place.top + 50, pointerId: 1, bubbles: true});
  const range = () => plot.getAttribute("aria-label").match(/from (.*?) to (.*?);/).slice(1);
  plot.setPointerCapture = () => {};  // a made-up pointer cannot be captured
  plot.dispatchEvent(new PointerEvent("pointermove", at(.85)));
  out.tip = tip.innerText.split("\\n").map((each) => each.trim()).filter(Boolean);
  out.whole = range();
  plot.dispatchEvent(new WheelEvent("wheel", {...at(.85), deltaY: -100})); out.wheel = range();
  press("0"); out.all = range();
  plot.dispatchEvent(new PointerEvent("pointerdown", at(.4)));
  plot.dispatchEvent(new PointerEvent("pointermove", at(.6)));
  plot.dispatchEvent(new PointerEvent("pointerup", at(.6))); out.drag = range();
  press("0"); press("+"); out.plus = range(); press("0");
  const key = (name) => plot.dispatchEvent(new KeyboardEvent("keydown", {key: name}));
  key("Home"); for (let step = 0; step < 30; step++) key("ArrowRight");
  key("Enter"); out.chosen = all("#moments button[aria-pressed=true]").map((each) => each.textContent);
  press("s"); out.stacked = document.getElementById("chart-by").value;
  all("#legend button")[0].click(); out.hidden = all("#legend button[aria-pressed=false]").length;
}
document.title = JSON.stringify(out);
</script></body>
"""


def in_browser(page: str, folder: Path) -> dict[str, Any]:
    """Run a page, press some keys, and say what it shows."""
    assert BROWSER is not None
    path = folder / "page.html"
    watch = "<script>window.failed = []; window.onerror = (message) => { window.failed.push(message); };</script>\n<script type"
    path.write_text(page.replace("<script type", watch, 1).replace("</body>", SEES), encoding="utf-8")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1280,1000",
        f"--user-data-dir={folder}/profile",
    ]
    done = subprocess.run(
        [BROWSER, *options, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=100, check=True
    )
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title is not None
    found: dict[str, Any] = json.loads(title[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    return found


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on the PATH")
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    shown = in_browser(as_html(fixed_report()), tmp_path)
    assert shown["errors"] == []
    assert shown["tiles"][0][:2] == ["leaked", "3"]
    assert ["peak", "4.78 MiB", "after 2.00 s"] in shown["tiles"]
    assert shown["rows"] == ["array", "event #9"]
    assert shown["legend"] == ["array: at most 4.78 MiB", "buffer: at most 64 B"]
    assert shown["alive"] == 5  # by line
    assert shown["by"] == "stack"
    assert shown["moment"] == ["at the peak"]
    assert shown["peak"].startswith("7 at the peak, 4.78 MiB")
    assert shown["focus"] == "search"
    assert len(shown["found"]) == 1
    assert shown["details"] == 1
    assert shown["sorted"] == ["Count"]
    assert shown["theme"] in ("dark", "light")
    assert shown["tip"] == ["2.00 s", "4.78 MiB", "buffer", "64 B", "array", "4.78 MiB"]
    assert shown["whole"] == shown["all"] == ["0 \u00b5s", "2.75 s"]
    assert all(shown[how] != shown["whole"] for how in ("wheel", "drag", "plus"))
    assert shown["chosen"] == ["at 1.25 s"]
    assert shown["stacked"] == "line"
    assert shown["hidden"] == 1


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on the PATH")
def test_a_page_of_very_many_things(tmp_path: Path) -> None:
    """More than a call can have arguments."""
    rows = [replace(ROWS[2], key=number) for number in range(200_000)]
    shown = in_browser(as_html(Report(of_rows(rows))), tmp_path)
    assert shown["errors"] == []
    assert shown["tiles"][0] == ["alive", "200,000", "781 MiB"]
    assert shown["rows"] == ["array chunk 0"]


def test_the_page_of_a_hundred_thousand_events_is_small(tmp_path: Path) -> None:
    """Under 3 MB.  That it opens within 2 s is measured in bench_leaks."""
    report = large_report()
    path = tmp_path / "large.html"
    save_html(report, path)
    assert len(report.recording.events) > 100_000  # type: ignore[union-attr]
    assert path.stat().st_size < 3_000_000
    if BROWSER is not None:
        shown = in_browser(path.read_text(encoding="utf-8"), tmp_path)
        assert shown["errors"] == []
        assert ["made", "50,007", "50,002 released"] in shown["tiles"]
