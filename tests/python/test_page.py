"""The page of `attnscope report --format html` in a browser: clicks, keys, narrow screens, both themes, and without scripts."""

import json
import os
import subprocess
import tempfile
import unittest

from browser import Browser, needs_browser
from places import ROOT, needs_program, program

STORY = "the king took a quiet story in the night ."
HOSTILE = "</script><img src=x onerror=alert(1)>\u2028"


def written(directory, name, *words):
    path = os.path.join(directory, name)
    done = subprocess.run([program() or "attnscope", *words, "--format", "html", "--output", path], capture_output=True, text=True)
    # `diff` ends with 1 where two checkpoints differ.
    assert done.returncode < 2, done.stderr
    return path


def hostile_checkpoint(directory):
    """A small checkpoint, one of whose tokens is made of code."""
    copy = os.path.join(directory, "hostile")
    os.mkdir(copy)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        with open(os.path.join(ROOT, "fixtures", "healthy", name), "rb") as file:
            content = file.read()
        if name == "tokenizer.json":
            content = json.loads(content)
            vocabulary = content["model"]["vocab"]
            vocabulary[HOSTILE] = vocabulary.pop("cat")
            content = json.dumps(content).encode()
        with open(os.path.join(copy, name), "wb") as file:
            file.write(content)
    return copy


@needs_program()
@needs_browser()
class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.files = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.files.cleanup)
        fixture = lambda name: os.path.join(ROOT, "fixtures", name)
        cls.broken = written(cls.files.name, "broken.html", "report", fixture("history/step-400.safetensors"), "--text", STORY)
        cls.long = written(cls.files.name, "long.html", "report", fixture("healthy"), "--tokens", ",".join(str(5 + n * 7 % 200) for n in range(64)))
        cls.hostile = written(cls.files.name, "hostile.html", "report", hostile_checkpoint(cls.files.name), "--tokens", "101,5,101,9")
        cls.difference = written(cls.files.name, "difference.html", "diff", fixture("healthy"), fixture("unscaled"), "--text", STORY)
        cls.history = written(cls.files.name, "history.html", "history", fixture("histories/jump.jsonl"))
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def open(self, path, **options):
        self.browser.open(path, **options)

    def tearDown(self):
        self.assertEqual(self.browser.errors, [])
        elsewhere = [url for url in self.browser.requests if not url.startswith(("file:", "data:image/png", "about:"))]
        self.assertEqual(elsewhere, [])

    def value(self, expression):
        return self.browser.value(expression)

    def text(self, selector):
        return self.value(f"document.querySelector({json.dumps(selector)})?.textContent")

    def opened(self):
        self.browser.until("document.querySelector('dialog.head').open && document.querySelector('.board') !== null")
        return self.text("#head-title")

    def until_closed(self):
        self.browser.until("!document.querySelector('dialog.head').open")

    def visible(self, selector):
        return self.value(f"[...document.querySelectorAll({json.dumps(selector)})].filter(e => e.offsetParent !== null).length")

    def test_a_click_in_the_grid_opens_a_head_with_its_tokens(self):
        self.open(self.broken)
        self.browser.click(".grid td a[href='#L1H2']")
        self.assertEqual(self.opened(), "L1H2")
        self.assertEqual(self.value("location.hash"), "#L1H2")
        self.assertEqual(self.value("[...document.querySelectorAll('dialog .tokens span')].map(s => s.textContent)"), STORY.split())
        self.browser.move(".board", 0.05, 0.35)
        self.assertRegex(self.text(".reading"), r"^query 3 a → key 0 the: (\d\.\d+|< 0\.001)$")
        self.browser.move(".board", 0.95, 0.05)
        self.assertEqual(self.text(".reading"), "query 0 the → key 9 .: masked")
        # A click holds the cell.
        self.browser.click(".board", 0.25, 0.55)
        self.browser.move(".board", 0.05, 0.95)
        self.assertTrue(self.text(".reading").startswith("query 5 story → key 2 took: "), self.text(".reading"))
        self.assertIn("score-explosion", self.text("dialog .of-head") or "")
        self.assertIn("relative entropy", self.text("dialog .facts"))
        self.browser.click("dialog button[aria-label='Next head']")
        self.browser.until("document.querySelector('#head-title').textContent === 'L1H3'")
        self.assertTrue(self.text(".reading").startswith("query 5 story → key 2 took: "), "the cell stays")
        self.browser.key("Escape")
        self.until_closed()
        self.assertEqual(self.value("location.hash"), "")

    def test_cells_have_the_colours_that_the_picture_has(self):
        """The script reads the image file by itself; the browser's own reader is the judge."""
        self.open(self.long)
        self.assertEqual(self.value("""(async () => {
            let n = 0;
            for (const of of heads.values()) {
              const image = of.figure.querySelector('img');
              const cells = await cellsOf(of);
              const canvas = document.createElement('canvas');
              [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
              if (canvas.width !== cells.cols || canvas.height !== cells.rows) return 'another size';
              const context = canvas.getContext('2d');
              context.drawImage(image, 0, 0);
              const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
              for (let at = 0; at < pixels.length / 4; at++) {
                const index = cells.at(Math.floor(at / cells.cols), at % cells.cols);
                const seen = pixels[4 * at + 3] === 0 ? 'masked' : `rgb(${pixels.slice(4 * at, 4 * at + 3).join(' ')})`;
                const read = index === MASKED ? 'masked' : cells.colour(index);
                if (seen !== read) return `${of.name}: ${seen} and ${read}`;
                n++;
              }
            }
            return n;
        })()"""), self.value("heads.size") * 64 * 64)

    def test_keys(self):
        self.open(self.broken)
        self.value("document.querySelector('.grid td a').focus()")
        for key in ("ArrowRight", "ArrowDown", "ArrowRight", "ArrowLeft"):
            self.browser.key(key)
        self.assertEqual(self.value("document.activeElement.getAttribute('href')"), "#L1H1")
        # One stop of the Tab key for a grid.
        self.assertEqual(self.value("document.querySelectorAll('.grid td a[tabindex=\"0\"]').length"), 1)
        self.browser.key("Enter")
        self.assertEqual(self.opened(), "L1H1")
        self.assertEqual(self.value("document.activeElement.className"), "board")
        before = self.text(".reading")
        self.browser.key("ArrowUp")
        self.assertTrue(before.startswith("query 9") and self.text(".reading").startswith("query 8"))
        self.browser.key("p")
        self.browser.until("document.querySelector('#head-title').textContent === 'L1H0'")
        self.browser.key("Escape")
        self.until_closed()
        self.assertEqual(self.value("document.activeElement.getAttribute('href')"), "#L1H1", "the focus comes back")
        self.browser.key("/")
        self.assertEqual(self.value("document.activeElement.type"), "search")
        self.browser.type("l1h3")
        self.assertEqual(self.text("output"), "1 of 8 heads")
        self.browser.key("Escape")
        self.assertEqual((self.text("output"), self.value("document.querySelector('input').value")), ("", ""))

    def test_filter_and_sort(self):
        self.open(self.broken)
        filtered = lambda words: self.value(f"filter({json.dumps(words)}), document.querySelector('output').textContent")
        self.assertEqual(filtered("entropy-collapse"), "2 of 8 heads")
        self.assertEqual((self.visible(".maps figure"), self.visible(".heads tbody tr")), (2, 2))
        self.assertEqual(self.value("document.querySelectorAll('.grid td.off').length"), 6)
        self.assertEqual(filtered("l1"), "4 of 8 heads")
        self.assertEqual(filtered("h2 L1 score-explosion"), "1 of 8 heads")
        all_of = self.value("[...document.querySelectorAll('.heads tbody tr')].filter(r => parseFloat(r.cells[3].textContent) > 0.01).length")
        self.assertEqual(filtered("entropy>0.01"), f"{all_of} of 8 heads")
        self.assertEqual(filtered("no such head"), "0 of 8 heads")
        filtered("")
        column = lambda: self.value("[...document.querySelectorAll('.heads tbody tr')].map(r => parseFloat(r.cells[3].textContent))")
        original = column()
        for expected in (sorted(original, reverse=True), sorted(original), original):
            self.browser.click(".heads th:nth-child(4) .sort")
            self.assertEqual(column(), expected)
        self.browser.click(".heads th:nth-child(4) .sort")
        self.assertEqual(self.value("document.querySelector('.heads th:nth-child(4)').ariaSort"), "descending")

    def test_findings_and_addresses_lead_to_the_head(self):
        self.open(self.broken)
        self.browser.click(".findings .place a[href='#L0H1']")
        self.assertEqual(self.opened(), "L0H1")
        self.value("history.back()")
        self.until_closed()
        self.open(self.broken, hash="#L1H3")
        self.assertEqual(self.opened(), "L1H3")

    def test_a_small_map_says_what_is_under_the_pointer(self):
        self.open(self.broken)
        self.browser.move("#L0H2 img", 0.05, 0.95)
        self.browser.until("!document.querySelector('.tip').hidden")
        self.assertRegex(self.text(".tip"), r"^L0H2 query 9 \. → key 0 the: ")

    def test_light_and_dark(self):
        colour = lambda: self.value("getComputedStyle(document.body).backgroundColor")
        for dark in (False, True):
            self.open(self.broken, dark=dark)
            before = colour()
            self.browser.click(".bar > button")
            self.assertNotEqual(colour(), before)
            self.browser.click(".bar > button")
            self.assertEqual(colour(), before)

    def test_no_width_makes_the_page_scroll_sideways(self):
        for path in (self.broken, self.long, self.hostile, self.difference, self.history):
            for width in (360, 400, 768, 1400):
                self.open(path, width=width)
                self.assertLessEqual(self.value("document.documentElement.scrollWidth"), width, (path, width))
                if path not in (self.difference, self.history):
                    self.value("go('L1H1')")
                    self.opened()
                    self.assertLessEqual(self.value("document.querySelector('dialog').scrollWidth"), width, (path, width))

    def test_a_token_of_code_stays_text(self):
        self.open(self.hostile)
        self.value("go('L0H0')")
        self.opened()
        shown = HOSTILE.replace("\u2028", "\ufffd")
        self.assertEqual(self.value("document.querySelector('dialog .tokens span').textContent"), shown)
        self.browser.move(".board", 0.1, 0.1)
        self.assertEqual(self.value("document.querySelectorAll('img[onerror], img[src=x]').length"), 0)

    def test_tables_of_a_comparison(self):
        self.open(self.difference)
        n = self.visible("main tbody tr")
        self.browser.click("table.sides th:nth-child(2) .sort")
        values = self.value("[...document.querySelector('table.sides').tBodies[0].rows].map(r => parseFloat(r.cells[1].textContent))")
        self.assertEqual(values, sorted(values, reverse=True))
        self.browser.key("/")
        self.browser.type("wte")
        self.assertEqual(self.text("output"), f"1 of {n} rows")
        self.assertEqual(self.visible("main tbody tr"), 1)

    def test_the_heads_of_a_training(self):
        self.open(self.history)
        names = self.value("[...document.querySelectorAll('.steps tbody tr[id]')].map(r => r.id)")
        last = "[...document.querySelector('.steps').tBodies[0].rows].map(r => parseFloat(r.cells[r.cells.length - 1].textContent))"
        self.browser.click(".steps thead th:last-child .sort")
        self.assertEqual(self.value(last), sorted(self.value(last), reverse=True))
        self.browser.key("/")
        self.browser.type(names[0].lower() + " ")
        self.assertGreaterEqual(self.visible(f".steps tbody tr[id={names[0]}]"), 1)
        self.assertLess(self.visible(".steps tbody tr[id]"), len(names))
        self.value("filter('')")
        self.browser.click(".findings .place a")
        self.browser.until("document.querySelector('dialog.head').open")
        self.assertIn(self.text("#head-title"), names)
        self.assertEqual(self.value("document.querySelectorAll('dialog .chart svg').length"), self.visible("details:has(.steps)"))
        self.assertGreater(self.value("document.querySelectorAll('dialog .of-head li').length"), 0)
        self.browser.key("n")
        self.browser.key("Escape")
        self.until_closed()
        self.assertEqual(self.value("location.hash"), "")

    def test_without_scripts_all_is_there(self):
        self.open(self.broken, scripts=False)
        self.browser.call("Emulation.setScriptExecutionDisabled", value=False)
        self.assertEqual(self.visible(".bar, .sort, dialog"), 0)
        self.assertEqual((self.visible(".grid td a"), self.visible(".maps img")), (8, 8))
        self.assertGreater(self.visible(".findings tbody tr"), 5)


if __name__ == "__main__":
    unittest.main()
