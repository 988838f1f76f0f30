//! Tests that parse the SVG of hand-made frames with an XML parser.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::*;

fn caption() -> Caption {
    Caption {
        title: "a <title> & more".to_owned(),
        description: "what \u{1} it is".to_owned(),
    }
}

fn drawn(buffer: &Buffer) -> String {
    let bytes = svg(buffer, Ground::Dark, &caption()).expect("writes to memory");
    String::from_utf8(bytes).expect("UTF-8")
}

fn number(node: roxmltree::Node<'_, '_>, name: &str) -> f64 {
    let value = node
        .attribute(name)
        .unwrap_or_else(|| panic!("{name} of {node:?}"));
    value.parse().expect("a number")
}

/// The fill at a point: that of the last rectangle that covers it.
fn fill_at(document: &roxmltree::Document<'_>, x: f64, y: f64) -> String {
    let covers = |node: &roxmltree::Node<'_, '_>| {
        let (left, top) = (number(*node, "x"), number(*node, "y"));
        (left..left + number(*node, "width")).contains(&x)
            && (top..top + number(*node, "height")).contains(&y)
    };
    let mut rects = document
        .descendants()
        .filter(|node| node.has_tag_name("rect"));
    let last = rects.rfind(covers).expect("a rectangle");
    last.attribute("fill").expect("a fill").to_owned()
}

/// Texts with their positions in cells, and their fill if they have their own.
fn texts(document: &roxmltree::Document<'_>) -> Vec<(f64, f64, f64, String, Option<String>)> {
    let texts = document
        .descendants()
        .filter(|node| node.has_tag_name("text"));
    texts
        .map(|node| {
            (
                number(node, "x") / 8.0,
                (number(node, "y") - 11.5) / 16.0,
                number(node, "textLength") / 8.0,
                node.text().unwrap_or_default().to_owned(),
                node.attribute("fill").map(str::to_owned),
            )
        })
        .collect()
}

const PAGE: &str = "#111319";
const INK: &str = "#e0e3e9";

#[test]
fn backgrounds_half_blocks_and_shades_have_their_colours() {
    let mut buffer = Buffer::empty(Rect::new(0, 0, 8, 2));
    let red_on_blue = Style::new()
        .fg(Color::Rgb(250, 1, 2))
        .bg(Color::Indexed(21));
    buffer.set_string(1, 0, "▀▄█ ", red_on_blue);
    buffer.set_string(
        5,
        0,
        "▒",
        Style::new().fg(Color::Rgb(100, 0, 0)).bg(Color::Black),
    );
    buffer.set_string(0, 1, "a", Style::new().add_modifier(Modifier::REVERSED));
    let text = drawn(&buffer);
    let document = roxmltree::Document::parse(&text).expect("well-formed");
    let halves = |column: u32, row: u32| {
        let (x, y) = (f64::from(column) * 8.0 + 4.0, f64::from(row) * 16.0);
        [
            fill_at(&document, x, y + 4.0),
            fill_at(&document, x, y + 12.0),
        ]
    };
    let (red, blue) = ("#fa0102", "#0000ff");
    assert_eq!(halves(0, 0), [PAGE, PAGE]);
    assert_eq!(halves(1, 0), [red, blue]);
    assert_eq!(halves(2, 0), [blue, red]);
    assert_eq!(halves(3, 0), [red, red]);
    assert_eq!(halves(4, 0), [blue, blue]);
    assert_eq!(halves(5, 0), ["#320000", "#320000"]);
    assert_eq!(halves(0, 1), [INK, INK]);
    let shown: Vec<_> = texts(&document);
    assert_eq!(
        shown,
        [(0.0, 1.0, 1.0, "a".to_owned(), Some(PAGE.to_owned()))]
    );
    // Four halves of each colour, of which two are adjacent.
    let rects = document.descendants().filter(|n| n.has_tag_name("rect"));
    let of = |fill: &str| {
        let fills = rects.clone().filter(|n| n.attribute("fill") == Some(fill));
        fills.count()
    };
    assert_eq!((of(red), of(blue)), (3, 3), "{text}");
}

#[test]
fn eighths_and_lines_are_rectangles_without_smoothing() {
    let mut buffer = Buffer::empty(Rect::new(0, 0, 5, 2));
    buffer.set_string(0, 0, "██▍", Style::new().fg(Color::Rgb(1, 200, 3)));
    buffer.set_string(0, 1, "┌─┐⣀", Style::new());
    let text = drawn(&buffer);
    let document = roxmltree::Document::parse(&text).expect("well-formed");
    for x in 0..24 {
        let expected = if x < 19 { "#01c803" } else { PAGE };
        assert_eq!(fill_at(&document, f64::from(x) + 0.5, 8.0), expected, "{x}");
    }
    // The box's upper line: from the middle of its left corner to that of its right one.
    for x in 0..24 {
        let expected = if (4..21).contains(&x) { INK } else { PAGE };
        assert_eq!(
            fill_at(&document, f64::from(x) + 0.5, 24.5),
            expected,
            "{x}"
        );
    }
    assert!(texts(&document).is_empty());
    let groups = document
        .descendants()
        .filter(|node| node.has_tag_name("rect"));
    for node in groups.skip(1) {
        let group = node.parent().expect("a group");
        assert_eq!(group.attribute("shape-rendering"), Some("crispEdges"));
    }
    let path = document
        .descendants()
        .find(|node| node.has_tag_name("path"));
    let path = path.and_then(|node| node.attribute("d")).expect("dots");
    assert_eq!(path, "M26 30h.01M30 30h.01");
}

#[test]
fn text_keeps_its_columns_and_wide_characters_take_two() {
    let mut buffer = Buffer::empty(Rect::new(0, 0, 24, 3));
    buffer.set_string(0, 0, " plain text  <&\"'>", Style::new());
    let on_red = Style::new().bg(Color::Rgb(90, 0, 0));
    buffer.set_string(2, 1, "a猫b", on_red);
    buffer.set_string(10, 1, "→ k", Style::new());
    let bold = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
    buffer.set_string(0, 2, "no", Style::new());
    buffer.set_string(2, 2, "de d", bold);
    let text = drawn(&buffer);
    let document = roxmltree::Document::parse(&text).expect("well-formed");
    let shown: Vec<_> = texts(&document)
        .into_iter()
        .map(|(x, y, n, text, _)| (x as u32, y as u32, n as u32, text))
        .collect();
    let expected = [
        (1, 0, 10, "plain text"),
        (13, 0, 5, "<&\"'>"),
        (2, 1, 1, "a"),
        (3, 1, 2, "猫"),
        (5, 1, 1, "b"),
        (10, 1, 1, "→"),
        (12, 1, 1, "k"),
        (0, 2, 2, "no"),
        (2, 2, 4, "de d"),
    ];
    let expected = expected.map(|(x, y, n, text)| (x, y, n, text.to_owned()));
    assert_eq!(shown, expected);
    // The background of a wide character is as wide as the character.
    for column in 2..6 {
        assert_eq!(
            fill_at(&document, f64::from(column) * 8.0 + 4.0, 20.0),
            "#5a0000"
        );
    }
    assert_eq!(fill_at(&document, 6.0 * 8.0 + 4.0, 20.0), PAGE);
    let underline: Vec<String> = (0..7)
        .map(|column| fill_at(&document, f64::from(column) * 8.0 + 4.0, 45.5))
        .collect();
    assert_eq!(underline, [PAGE, PAGE, INK, INK, INK, INK, PAGE]);
    let bold: Vec<&str> = document
        .descendants()
        .filter(|node| node.attribute("font-weight") == Some("bold"))
        .filter_map(|node| node.text())
        .collect();
    assert_eq!(bold, ["de d"]);
}

#[test]
fn title_and_description_are_escaped_and_contain_only_valid_xml_characters() {
    let text = drawn(&Buffer::empty(Rect::new(0, 0, 1, 1)));
    let document = roxmltree::Document::parse(&text).expect("well-formed");
    let of = |name: &str| {
        let node = document.descendants().find(|node| node.has_tag_name(name));
        node.and_then(|node| node.text()).map(str::to_owned)
    };
    assert_eq!(of("title").as_deref(), Some("a <title> & more"));
    assert_eq!(of("desc").as_deref(), Some("what \u{fffd} it is"));
    let root = document.root_element();
    assert_eq!(root.attribute("viewBox"), Some("-8 -8 24 32"));
    assert_eq!(
        (root.attribute("width"), root.attribute("height")),
        (Some("24"), Some("32"))
    );
}
