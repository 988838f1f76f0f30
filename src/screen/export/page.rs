//! Generates the docs page about exports from the panels' data.

use std::fmt::Write as _;

use super::data::PANELS;

/// The docs page: file names, pictures, and the columns of every panel's table.
pub fn export_page() -> String {
    let mut page = ABOUT.to_owned();
    for data in PANELS {
        let _ = writeln!(
            page,
            "\n## {}\n\n| `part` | what a row is |\n|---|---|",
            data.panel.title()
        );
        for (part, about) in data.parts {
            let _ = writeln!(page, "| `{part}` | {about} |");
        }
        let _ = writeln!(
            page,
            "\n| column | unit | what stands there |\n|---|---|---|"
        );
        for column in data.columns {
            let _ = writeln!(
                page,
                "| `{}` | {} | {} |",
                column.id,
                column.unit.unwrap_or_default(),
                column.about
            );
        }
    }
    page
}

const ABOUT: &str = "\
# Exports

After this page you can save what a panel shows, from the screen or without one, and read every column of its table.
Generated from what the panels say of their data.

`x` in any panel writes two files to the current directory: what is on screen as SVG, and the data of the panel as CSV. `Ctrl-S` does the
same while a text is edited or something is looked for. The line at the bottom says what was written, or in one line why nothing was.

    attnscope plot CHECKPOINT \"some text\" --panel head --layer 1 --head 5 --output head.svg

does the same without a terminal, and writes `head.csv` beside `head.svg`. It runs the model as the screen does, waits for all that the
panel shows, and draws one frame; without a checkpoint it is that of the demo. The same input gives the same bytes: times are left out.
`--demo NAME` shows one of `attnscope demo` in the place of a checkpoint, and `--page N` a page of its story.
`--panel overview|head|scores|tokens|model|checks|compare|rows|sweep`; `--layer`, `--head`, `--stack`, `--query` and `--key` select; `--statistic ID` is what
overview and scores show first; `--scores` and `--contribution`, `--log-scale` and `--without-first-key` are the keys `s`, `L` and `z` of the Head panel, `--receives`
is `r` of Tokens, `--numbers` is `a` of Overview, `--probe` and `--check ID` are `p` and a selected line of Checks; `--size 160x50` is the terminal, `--colors` the page:
`dark`, `light`, or `none` for a page without colours. `--output -` writes the SVG to standard output. Nothing is written over unless
`--force` is given.

`X` and `plot --figure` write the data alone, for paper; see [figures.md](figures.md).

## Names

`<model>-<panel>[-<stack>][-L3H5][-<what>].svg` and `.csv`, as `gpt2-head-L3H5-pattern.svg`. The second export of the same is `…-2`, and so on:
both files get the first number that is free for both, and neither is ever written over. They appear whole, together, or not at all.

## Pictures

A cell is 8 × 16 units. Grounds, half-blocks, eighths, shades and lines are rectangles without smoothing, braille is dots: there are no
seams, whatever the font and the scale. Letters are text in the reader's monospaced font, stretched to the columns they stand in. `<title>` and
`<desc>` say what the picture is of.

## Tables

The first column, `part`, says what kind of row it is; cells that a kind does not have are empty. Numbers have all the digits they need to
be read back as they were; those that are not finite are `NaN`, `Infinity` and `-Infinity`. Layers, heads, queries, keys and
positions count from 0. `stack` is empty for the only stack, else `encoder`, `decoder` or `cross`. Tokens are as the tokenizer
reads them, blanks and line breaks included. The last column of every table, `side`, is empty unless there are two runs. It says
whether a row belongs to the run `before` or `after` a what-if (`w`, `--what-if`), or to `A` or `B` (`--against`, `E`). Where the screen
shows the difference, both are there. In
Python, a map is

    table = pandas.read_csv(\"head.csv\")
    map = table[table.part == \"cell\"].pivot(index=\"query\", columns=\"key\", values=\"probability\")

What has not been computed yet is not in the table. With something over the panel, the table is still the panel's.
";
