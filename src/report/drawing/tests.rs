//! Reads drawings back in all three formats and checks their content.

use std::io::Read as _;

use super::*;

const RED: Rgb = [220, 40, 30];
const BLUE: Rgb = [20, 60, 200];

/// A page with two cells (the second is empty), a text and a line.
fn drawing() -> Drawing {
    Drawing {
        width: 40.0,
        height: 30.0,
        title: "a <map> & more".to_owned(),
        has_live_text: false,
        shapes: vec![
            Shape::Cells {
                place: Area {
                    x: 10.0,
                    y: 5.0,
                    width: 20.0,
                    height: 10.0,
                },
                n_columns: 2,
                cells: vec![Some(RED), None],
            },
            Shape::Text(Text {
                text: "L1H3 <q>".to_owned(),
                at: (20.0, 25.0),
                size: 4.0,
                colour: BLUE,
                anchor: Anchor::Middle,
                is_upright: false,
            }),
            Shape::Line {
                points: vec![(0.0, 29.0), (40.0, 29.0)],
                stroke: Stroke {
                    colour: [0, 0, 0],
                    width: 0.5,
                    dashes: vec![1.0, 0.5],
                },
            },
        ],
    }
}

#[test]
fn svg_letters_are_outlines_and_the_text_is_in_a_description() {
    let text = svg(&drawing());
    let document = roxmltree::Document::parse(&text).expect("XML");
    let root = document.root_element();
    assert_eq!(root.attribute("width"), Some("40mm"));
    assert_eq!(root.attribute("viewBox"), Some("0 0 40 30"));
    assert!(
        document
            .descendants()
            .all(|node| !node.has_tag_name("text"))
    );
    let said = document
        .descendants()
        .find_map(|node| node.attribute("aria-label"));
    assert_eq!(said, Some("L1H3 <q>"));
    let ids: Vec<&str> = document
        .descendants()
        .filter(|node| node.has_tag_name("path"))
        .filter_map(|node| node.attribute("id"))
        .collect();
    let uses: Vec<&str> = document
        .descendants()
        .filter(|node| node.has_tag_name("use"))
        .filter_map(|node| node.attribute("href"))
        .collect();
    assert_eq!(uses.len(), "L1H3 <q>".len());
    assert!(uses.iter().all(|href| ids.contains(&&href[1..])));
    // The empty cell is not drawn.
    let cells = document
        .descendants()
        .filter(|node| node.has_tag_name("path") && node.attribute("fill") == Some("#dc281e"));
    let places: Vec<_> = cells.filter_map(|node| node.attribute("d")).collect();
    assert_eq!(places, ["M10 5h10v10h-10z"]);
}

#[test]
fn a_png_has_colours_in_place_and_states_its_resolution() {
    let bytes = png(&drawing()).expect("draws");
    let mut reader = ::png::Decoder::new(std::io::Cursor::new(bytes))
        .read_info()
        .expect("a PNG");
    let size = reader.info().pixel_dims.expect("a resolution");
    assert_eq!((size.xppu, size.unit), (11_811, ::png::Unit::Meter));
    let (width, height) = reader.info().size();
    assert_eq!((width, height), (472, 354));
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    reader.next_frame(&mut pixels).expect("pixels");
    let at = |x: f64, y: f64| -> Rgb {
        let [x, y] = [x, y].map(|length| (length * 300.0 / 25.4) as usize);
        let first = 3 * (y * width as usize + x);
        [pixels[first], pixels[first + 1], pixels[first + 2]]
    };
    assert_eq!(at(15.0, 10.0), RED);
    assert_eq!(at(25.0, 10.0), [255, 255, 255]);
    // The text is around x = 20, above y = 25: some of its pixels are coloured.
    let inks = pixels.chunks(3).filter(|pixel| *pixel == BLUE).count();
    assert!((500..8000).contains(&inks), "{inks}");
    assert_eq!(at(2.0, 22.0), [255, 255, 255]);
}

#[test]
fn a_pdf_has_one_page_of_the_right_size_with_vector_shapes() {
    let bytes = pdf(&drawing()).expect("packs");
    assert!(bytes.starts_with(b"%PDF-1."));
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("/MediaBox [0 0 113.38"), "{text}");
    assert!(!text.contains("/CreationDate"));
    // The offset in the trailer is that of the object table.
    let (_, end) = text.rsplit_once("startxref\n").expect("a trailer");
    let at: usize = end
        .lines()
        .next()
        .expect("a place")
        .parse()
        .expect("a number");
    assert!(bytes[at..].starts_with(b"xref"));
    let find = |what: &[u8]| bytes.windows(what.len()).position(|window| window == what);
    let begin = find(b"stream\n").expect("a stream") + 7;
    let end = find(b"\nendstream").expect("its end");
    let mut content = String::new();
    flate2::read::ZlibDecoder::new(&bytes[begin..end])
        .read_to_string(&mut content)
        .expect("operators");
    let count = |operator: &str| {
        content
            .lines()
            .filter(|line| line.ends_with(operator))
            .count()
    };
    assert_eq!(count(" re"), 1);
    // One fill for the cell, and one per letter except the blank.
    assert_eq!(count("f"), 1 + "L1H3<q>".len());
    assert_eq!(count("S"), 1);
    assert!(count(" c") > 20);
}

#[test]
fn text_width_is_the_sum_of_its_letters_and_decides_where_it_is_cut() {
    assert!((text_width("mm", 2.0) - 2.0 * text_width("m", 2.0)).abs() < 1e-9);
    assert!(text_width("i", 1.0) < text_width("m", 1.0));
    let short = cut("a text that is too long", 2.0, 15.0);
    assert!(
        short.ends_with('…') && text_width(&short, 2.0) <= 15.0,
        "{short}"
    );
    assert!(!lacks("Größe Ġтекст ≤ → “x”"));
    assert!(lacks("猫"));
}

#[test]
fn an_svg_embeds_a_large_map_as_one_image() {
    let mut large = drawing();
    large.shapes = vec![Shape::Cells {
        place: Area {
            x: 0.0,
            y: 0.0,
            width: 40.0,
            height: 30.0,
        },
        n_columns: 200,
        cells: (0..20_000).map(|i| Some([i as u8, 0, 0])).collect(),
    }];
    let text = svg(&large);
    let document = roxmltree::Document::parse(&text).expect("XML");
    let image = document
        .descendants()
        .find(|node| node.has_tag_name("image"));
    let href = image
        .expect("an image")
        .attribute("href")
        .expect("its data");
    let data = href.strip_prefix("data:image/png;base64,").expect("a PNG");
    let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, data);
    let decoder = ::png::Decoder::new(std::io::Cursor::new(bytes.expect("base64")));
    let reader = decoder.read_info().expect("a PNG");
    assert_eq!(reader.info().size(), (200, 100));
}

#[test]
fn live_text_stays_text_in_svg_and_pdf() {
    let live = Drawing {
        has_live_text: true,
        ..drawing()
    };
    let svg = svg(&live);
    let document = roxmltree::Document::parse(&svg).expect("an SVG");
    let mut texts = document
        .descendants()
        .filter(|node| node.has_tag_name("text"));
    assert_eq!(texts.next().and_then(|node| node.text()), Some("L1H3 <q>"));
    let bytes = pdf(&live).expect("packs");
    let text = String::from_utf8_lossy(&bytes);
    for part in ["/Identity-H", "/FontFile2", "/ToUnicode"] {
        assert!(text.contains(part), "{part}");
    }
    assert!(!String::from_utf8_lossy(&pdf(&drawing()).expect("packs")).contains("/FontFile2"));
}
