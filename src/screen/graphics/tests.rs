//! Tests that parse the bytes sent to the terminal as a terminal would.

use std::sync::Arc;

use std::io::Cursor;

use attnscope_compute::attention::Pooled;
use attnscope_run::Pyramid;
use attnscope_terminal::theme::{Depth, Theme};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::widgets::heatmap::{HeatMap, Scale};
use crate::widgets::hidden::Hidden;
use crate::widgets::window::Window;

fn with<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
    |name| {
        let found = pairs.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    }
}

#[test]
fn a_protocol_is_used_only_where_the_terminal_says_that_it_has_one() {
    for (pairs, expected) in [
        (&[("TERM", "xterm-kitty")][..], Some(Protocol::Kitty)),
        (
            &[("TERM", "xterm-256color"), ("KITTY_WINDOW_ID", "1")],
            Some(Protocol::Kitty),
        ),
        (&[("TERM_PROGRAM", "WezTerm")], Some(Protocol::Iterm)),
        (&[("LC_TERMINAL", "iTerm2")], Some(Protocol::Iterm)),
        (&[("TERM", "foot-extra")], Some(Protocol::Sixel)),
        (&[("TERM", "xterm-256color")], None),
        (
            &[("TERM", "xterm-kitty"), ("TMUX", "/tmp/tmux-0/default,1,0")],
            None,
        ),
        (&[("TERM", "xterm-kitty"), ("NO_COLOR", "1")], None),
        (&[("TERM_PROGRAM", "Apple_Terminal")], None),
        (&[], None),
    ] {
        assert_eq!(
            Graphics::Auto.protocol(with(pairs), false),
            expected,
            "{pairs:?}"
        );
    }
    let kitty = [("TERM", "xterm-kitty")];
    // One that says so itself shows sixels, if nothing better is known of it and nothing stands between.
    for (pairs, expected) in [
        (&[("TERM", "xterm-256color")][..], Some(Protocol::Sixel)),
        (&kitty[..], Some(Protocol::Kitty)),
        (&[("TMUX", "/tmp/x")], None),
        (&[("NO_COLOR", "1")], None),
    ] {
        assert_eq!(Graphics::Auto.protocol(with(pairs), true), expected);
    }
    assert_eq!(Graphics::Off.protocol(with(&kitty), true), None);
    // Inside tmux, kitty's protocol has to be asked for, and then goes through it.
    let chosen = Graphics::Use(Protocol::Kitty);
    let inside = [("TMUX", "/tmp/x")];
    let through = Some(Protocol::KittyInTmux);
    assert_eq!(chosen.protocol(with(&inside), false), through);
    assert_eq!(chosen.protocol(with(&kitty), false), Some(Protocol::Kitty));
    let chosen = Graphics::Use(Protocol::Sixel);
    assert_eq!(chosen.protocol(with(&kitty), false), Some(Protocol::Sixel));
}

/// Image of an n × n matrix in an area of the given width; its diagonal is 1, with nothing above it.
fn image(n: usize, columns: u16, zoom: i32, crosshair: Option<(usize, usize)>) -> Image {
    let mut pooled = Pooled::with_cells(n, n, n);
    for row_idx in 0..n {
        let row: Vec<f32> = (0..n)
            .map(|key| match key.cmp(&row_idx) {
                std::cmp::Ordering::Less => 0.25,
                std::cmp::Ordering::Equal => 1.0,
                std::cmp::Ordering::Greater => f32::NEG_INFINITY,
            })
            .collect();
        let cells = &mut pooled.cells[row_idx * n..][..n];
        cells.copy_from_slice(&row);
    }
    let theme = Theme::new(Depth::Indexed);
    let map = HeatMap {
        theme: &theme,
        values: &Pyramid::new(pooled),
        hidden: Hidden::Nothing,
        window: Window::of_zoom(zoom, n, usize::from(columns)),
        scale: Scale {
            low: 0.0,
            high: 1.0,
            is_log: false,
        },
        crosshair,
    };
    Image::of(&map, Rect::new(0, 0, columns, columns.div_ceil(2)), (8, 16))
}

#[test]
fn a_map_of_512_tokens_has_a_pixel_for_each_pair() {
    // 64 columns: a half-block covers 8 × 8 tokens and has 8 × 8 pixels.
    let image = image(512, 64, -3, None);
    assert_eq!((image.width, image.height), (512, 512));
    let at = |x: usize, y: usize| image.pixels[y * image.width + x];
    let colours = [at(100, 300), at(300, 300), at(301, 300)];
    assert!(colours[0] != colours[1] && colours[2] == 0, "{colours:?}");
    assert!((0..512).all(|i| at(i, i) == colours[1]));
    assert!((1..512).all(|i| at(i, i - 1) == 0 && at(i - 1, i) == colours[0]));
}

#[test]
fn a_small_map_fills_the_pixels_of_its_half_blocks() {
    // Two half-blocks per token.
    let image = image(4, 8, 2, None);
    assert_eq!((image.width, image.height), (64, 64));
    let at = |x: usize, y: usize| image.pixels[y * 64 + x];
    assert!((0..16).all(|i| at(i, 0) == at(0, 0) && at(0, i) == at(0, 0)));
    assert_eq!(at(16, 0), 0);
    assert_ne!(at(0, 16), at(0, 0));
}

#[test]
fn the_selected_cell_is_framed_and_keeps_its_colour() {
    let (plain, framed) = (image(4, 8, 2, None), image(4, 8, 2, Some((2, 1))));
    let at = |image: &Image, x: usize, y: usize| image.pixels[y * 64 + x];
    let changed = |(x, y): (usize, usize)| at(&plain, x, y) != at(&framed, x, y);
    let all = (0..64).flat_map(|y| (0..64).map(move |x| (x, y)));
    let found: Vec<(usize, usize)> = all.filter(|place| changed(*place)).collect();
    // Query 2 and key 1 take 16 × 16 pixels from (16, 32); the frame is around them.
    let is_edge = |(x, y): &(usize, usize)| {
        let (across, down) = (15..=32, 31..=48);
        across.contains(x) && down.contains(y) && (*x == 15 || *x == 32 || *y == 31 || *y == 48)
    };
    assert_eq!(found.len(), 4 * 17);
    assert!(found.iter().all(is_edge), "{found:?}");
}

/// The PNG's pixels as indices of its palette, and the palette.
fn decoded(bytes: &[u8]) -> (Vec<u8>, Vec<u8>, (u32, u32)) {
    let decoder = png::Decoder::new(Cursor::new(bytes));
    let mut reader = decoder.read_info().expect("a PNG");
    let palette = reader
        .info()
        .palette
        .clone()
        .expect("a palette")
        .into_owned();
    let trns = reader.info().trns.clone().expect("transparency");
    assert_eq!(trns[0], 0);
    let size = reader.info().size();
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    reader.next_frame(&mut pixels).expect("pixels");
    (pixels, palette, size)
}

#[test]
fn kitty_parts_form_one_png_and_give_its_position() {
    let image = image(96, 12, -3, None);
    let area = Rect::new(3, 2, 12, 6);
    let mut written = Vec::new();
    kitty::write(&image, area, Placement::Cursor, &mut written).expect("writes");
    let text = String::from_utf8(written).expect("text");
    let mut data = String::new();
    let parts: Vec<&str> = text
        .split("\x1b\\")
        .filter(|part| !part.is_empty())
        .collect();
    for (idx, part) in parts.iter().enumerate() {
        let part = part.strip_prefix("\x1b_G").expect("a command");
        let (keys, payload) = part.split_once(';').expect("keys");
        assert!(payload.len() <= 4096);
        let more = keys
            .split(',')
            .find(|key| key.starts_with("m="))
            .expect("m");
        assert_eq!(more == "m=0", idx + 1 == parts.len());
        if idx == 0 {
            for key in ["a=T", "f=100", "q=2", "C=1", "c=12", "r=6", "z=-1"] {
                assert!(keys.split(',').any(|found| found == key), "{key}: {keys}");
            }
        }
        data.push_str(payload);
    }
    let (pixels, palette, size) = decoded(&STANDARD.decode(data).expect("base64"));
    assert_eq!(size, (96, 96));
    assert_eq!(pixels, image.pixels);
    assert_eq!(palette, image.palette.concat());
}

#[test]
fn iterms_file_is_a_png_of_the_stated_size() {
    let image = image(96, 12, -3, None);
    let mut written = Vec::new();
    iterm::write(&image, Rect::new(0, 0, 12, 6), &mut written).expect("writes");
    let text = String::from_utf8(written).expect("text");
    let inside = text.strip_prefix("\x1b]1337;File=").expect("a file");
    let (keys, data) = inside.split_once(':').expect("keys");
    let bytes = STANDARD
        .decode(data.strip_suffix('\x07').expect("an end"))
        .expect("base64");
    assert!(keys.contains(&format!("size={};width=12;height=6;", bytes.len())));
    assert_eq!(decoded(&bytes).0, image.pixels);
}

/// Parses sixels into colour numbers of pixels.
fn of_sixels(text: &str, width: usize, height: usize) -> Vec<u8> {
    let body = text.strip_prefix("\x1bP0;1;0q").expect("a beginning");
    let body = body.strip_suffix("\x1b\\").expect("an end");
    let mut pixels = vec![0; width * height];
    let (mut x, mut band, mut colour) = (0, 0, 0);
    let mut letters = body.chars().peekable();
    let number = |letters: &mut std::iter::Peekable<std::str::Chars<'_>>| {
        let mut number = 0;
        while let Some(digit) = letters.peek().and_then(|c| c.to_digit(10)) {
            number = 10 * number + digit as usize;
            letters.next();
        }
        number
    };
    while let Some(letter) = letters.next() {
        let mut n = 1;
        let letter = match letter {
            '"' | '#' => {
                let first = number(&mut letters);
                let is_size = letter == '"';
                let mut n_more = 0;
                while letters.next_if_eq(&';').is_some() {
                    number(&mut letters);
                    n_more += 1;
                }
                if !is_size && n_more == 0 {
                    colour = first;
                }
                continue;
            }
            '$' => {
                x = 0;
                continue;
            }
            '-' => {
                (x, band) = (0, band + 1);
                continue;
            }
            '!' => {
                n = number(&mut letters);
                letters.next().expect("a letter")
            }
            letter => letter,
        };
        let bits = letter as u32 - 63;
        for _ in 0..n {
            for row in (0..6).filter(|row| bits >> row & 1 == 1) {
                pixels[(6 * band + row) * width + x] = colour as u8;
            }
            x += 1;
        }
    }
    pixels
}

#[test]
fn sixels_are_the_pixels_of_the_image() {
    let image = image(96, 12, -3, None);
    let mut written = Vec::new();
    sixel::write(&image, &mut written).expect("writes");
    let text = String::from_utf8(written).expect("text");
    assert_eq!(of_sixels(&text, image.width, image.height), image.pixels);
    assert!(text.contains("\"1;1;96;96"));
    assert!(text.len() < image.pixels.len(), "{} bytes", text.len());
}

fn pictures(protocol: Protocol) -> Pictures {
    Pictures {
        protocol: Some(protocol),
        cell: (8, 16),
        ..Pictures::default()
    }
}

#[test]
fn a_frame_without_a_map_leaves_the_terminal_alone() {
    let app = App::new(Theme::new(Depth::Truecolor), (80, 24), "a".to_owned());
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    let before = buffer.clone();
    let mut out = Vec::new();
    let mut pictures = pictures(Protocol::Kitty);
    pictures
        .take_over(&app, &mut buffer, &mut out)
        .expect("writes");
    pictures.show(&mut out).expect("writes");
    assert!(out.is_empty() && buffer == before);
}

#[test]
fn a_picture_is_sent_once_replaced_in_place_and_erased_where_it_was() {
    let mut pictures = pictures(Protocol::Sixel);
    let placed = |x: u16, n: usize| Placed {
        area: Rect::new(x, 1, 12, 6),
        image: Arc::new(image(n, 12, -3, None)),
        cells: vec![Rect::new(x, 1, 12, 6)],
        seen: None,
    };
    let shown = |pictures: &mut Pictures, next: Placed| {
        let mut out = Vec::new();
        pictures.next = Some(next);
        pictures.show(&mut out).expect("writes");
        String::from_utf8(out).expect("text")
    };
    let first = shown(&mut pictures, placed(2, 96));
    assert!(first.starts_with("\x1b[2;3H\x1bP"), "{first:?}");
    assert!(shown(&mut pictures, placed(2, 96)).is_empty());
    let second = shown(&mut pictures, placed(2, 48));
    assert!(second.contains(&" ".repeat(12)), "what stood there is gone");
    // The next frame has no map: its area is blanked before the frame is written.
    let app = App::new(Theme::new(Depth::Truecolor), (80, 24), "a".to_owned());
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    let mut out = Vec::new();
    pictures
        .take_over(&app, &mut buffer, &mut out)
        .expect("writes");
    let text = String::from_utf8(out).expect("text");
    assert_eq!(text.matches(&" ".repeat(12)).count(), 6);
    assert!(pictures.shown.is_none());
}

#[test]
fn without_the_cell_size_no_picture_is_shown() {
    let mut pictures = pictures(Protocol::Kitty);
    pictures.cell = (0, 0);
    assert_eq!(pictures.in_use(), None);
    pictures.next = Some(Placed {
        area: Rect::new(0, 0, 12, 6),
        image: Arc::new(image(96, 12, -3, None)),
        cells: vec![Rect::new(0, 0, 12, 6)],
        seen: None,
    });
    let mut out = Vec::new();
    pictures.show(&mut out).expect("writes");
    assert!(out.is_empty());
}

/// What a terminal receives of bytes that went through tmux, and what tmux itself receives.
fn through_tmux(bytes: &[u8]) -> (String, String) {
    let text = String::from_utf8(bytes.to_vec()).expect("text");
    let (mut outside, mut inside) = (String::new(), String::new());
    let mut rest = text.as_str();
    while let Some((before, wrapped)) = rest.split_once("\x1bPtmux;") {
        inside.push_str(before);
        // An escape inside is doubled, so a single one ends the wrapping.
        let (mut at, bytes) = (0, wrapped.as_bytes());
        while bytes[at] != 0x1b || bytes[at + 1] == 0x1b {
            at += if bytes[at] == 0x1b { 2 } else { 1 };
        }
        outside.push_str(&wrapped[..at].replace("\x1b\x1b", "\x1b"));
        rest = wrapped[at..].strip_prefix("\x1b\\").expect("an end");
    }
    inside.push_str(rest);
    (outside, inside)
}

#[test]
fn inside_tmux_cells_hold_placeholders_and_the_picture_goes_through() {
    let area = Rect::new(3, 2, 12, 6);
    let image = Arc::new(image(96, 12, -3, None));
    let mut pictures = pictures(Protocol::KittyInTmux);
    pictures.next = Some(Placed {
        area,
        image: Arc::clone(&image),
        cells: vec![area],
        seen: None,
    });
    let mut out = Vec::new();
    pictures.show(&mut out).expect("writes");
    let (outside, inside) = through_tmux(&out);
    assert!(inside.is_empty(), "{inside:?}");
    let mut data = String::new();
    for command in outside.split("\x1b\\").filter(|part| !part.is_empty()) {
        let command = command.strip_prefix("\x1b_G").expect("a command");
        let (keys, payload) = command.split_once(';').expect("keys");
        let is_first = data.is_empty();
        for key in ["a=T", "U=1", "i=207", "c=12", "r=6", "q=2"] {
            let is_there = keys.split(',').any(|found| found == key);
            assert_eq!(is_there, is_first, "{key}: {keys}");
        }
        data.push_str(payload);
    }
    let (pixels, ..) = decoded(&STANDARD.decode(data).expect("base64"));
    assert_eq!(pixels, image.pixels);
    // Each cell says which row and column it shows, by characters that no other row or column has.
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    for position in area.positions() {
        placeholders::fill(&mut buffer[position], position, area);
    }
    let marks = |x: u16, y: u16| -> Vec<char> {
        let cell = &buffer[(x, y)];
        assert_eq!(cell.fg, ratatui::style::Color::Indexed(207));
        cell.symbol().chars().collect()
    };
    assert_eq!(marks(3, 2), ['\u{10EEEE}', '\u{305}', '\u{305}']);
    assert_eq!(marks(4, 3), ['\u{10EEEE}', '\u{30D}', '\u{30D}']);
    assert_eq!(marks(14, 7), ['\u{10EEEE}', '\u{33D}', '\u{34C}']);
    assert_eq!(buffer[(2, 2)].symbol(), " ");
    // The next frame has no map: the picture is deleted, and cells are left to the frame.
    let app = App::new(Theme::new(Depth::Truecolor), (80, 24), "a".to_owned());
    let mut out = Vec::new();
    pictures
        .take_over(&app, &mut buffer, &mut out)
        .expect("writes");
    let (outside, inside) = through_tmux(&out);
    assert_eq!(outside, "\x1b_Ga=d,d=I,i=207,q=2\x1b\\");
    assert!(inside.is_empty(), "{inside:?}");
}
