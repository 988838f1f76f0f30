//! Reads an SVG back as a terminal's cells: which letter stands in each, and how each quarter of a cell is filled.

#![allow(dead_code, reason = "each test uses a part of this")]

use std::collections::BTreeMap;

/// Units of a cell, as docs/export.md has them.
pub const WIDTH: u32 = 8;
pub const HEIGHT: u32 = 16;

/// What is drawn where.
pub struct Picture {
    /// By column and row.
    pub letters: BTreeMap<(u32, u32), String>,
    /// Rectangles in the order in which they are painted: left, top, right, bottom, fill.
    rects: Vec<(f64, f64, f64, f64, String)>,
    pub title: String,
    pub description: String,
}

impl Picture {
    pub fn read(svg: &[u8]) -> Self {
        let text = std::str::from_utf8(svg).expect("UTF-8");
        let document = roxmltree::Document::parse(text).expect("well-formed");
        let number = |node: roxmltree::Node<'_, '_>, name: &str| -> f64 {
            let value = node.attribute(name).expect("an attribute");
            value.parse().expect("a number")
        };
        let all = |name: &'static str| {
            let nodes = document.descendants();
            nodes.filter(move |node| node.has_tag_name(name))
        };
        let said = |name: &'static str| {
            let text = all(name).next().and_then(|node| node.text());
            text.expect("a text").to_owned()
        };
        let rects = all("rect").map(|node| {
            let (x, y) = (number(node, "x"), number(node, "y"));
            let (width, height) = (number(node, "width"), number(node, "height"));
            let fill = node.attribute("fill").expect("a fill").to_owned();
            (x, y, x + width, y + height, fill)
        });
        let mut letters = BTreeMap::new();
        for node in all("text") {
            let text = node.text().expect("letters");
            let column = number(node, "x") as u32 / WIDTH;
            let row = number(node, "y") as u32 / HEIGHT;
            let n_columns = number(node, "textLength") as u32 / WIDTH;
            let n_letters = text.chars().count() as u32;
            if n_letters == n_columns {
                for (n, letter) in (0..).zip(text.chars()) {
                    letters.insert((column + n, row), letter.to_string());
                }
            } else {
                // One letter over two columns, or one that is written as several.
                letters.insert((column, row), text.to_owned());
            }
        }
        letters.retain(|_, letter| letter != " ");
        Self {
            letters,
            rects: rects.collect(),
            title: said("title"),
            description: said("desc"),
        }
    }

    /// The letters of a row, blanks between them.
    pub fn line(&self, row: u32) -> String {
        let mut line = String::new();
        for ((column, _), letter) in self.letters.iter().filter(|((_, y), _)| *y == row) {
            let n_missing = (*column as usize).saturating_sub(line.chars().count());
            line.extend(std::iter::repeat_n(' ', n_missing));
            line.push_str(letter);
        }
        line
    }

    /// The fill at a point.
    pub fn fill_at(&self, x: f64, y: f64) -> &str {
        let covers = |(left, top, right, bottom, _): &&(f64, f64, f64, f64, String)| {
            (*left..*right).contains(&x) && (*top..*bottom).contains(&y)
        };
        let last = self.rects.iter().rev().find(covers);
        last.map_or("nothing", |(.., fill)| fill)
    }
}
