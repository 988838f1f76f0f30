//! `x` on every screen: the picture is what is on screen, two files appear, and nothing is written over.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, mpsc};

use attnscope::bundles::BUNDLES;
use attnscope_checkpoint::Opening;
use attnscope_prompt::Request;
use attnscope_screen::{App, Depth, Effect, Export, Ground, Msg, Panel, Theme};
use attnscope_worker::{Event, PromptOrigin, Terms, Worker};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};
use testing::picture::Picture;
use testing::screen::Screen;

const TEXT: &str =
    "the old king gave a red apple to his horse . the old king gave a red apple to his horse .";

fn demo(size: (u16, u16)) -> Screen {
    Screen::open(None, Request::text(TEXT), size, Depth::Truecolor)
}

fn files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("lists");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Whether a symbol is drawn as a shape: blocks, lines of boxes, braille.
fn is_shape(symbol: &str) -> bool {
    let c = symbol.chars().next().unwrap_or(' ');
    matches!(c, '\u{2580}'..='\u{259f}' | '\u{2800}'..='\u{28ff}' | '─' | '│' | '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┬' | '┴' | '┼')
}

fn hex(colour: Color) -> Option<String> {
    match colour {
        Color::Rgb(r, g, b) => Some(format!("#{r:02x}{g:02x}{b:02x}")),
        _ => None,
    }
}

/// Every letter of the frame stands in the picture where it stands on screen, and no other does.
fn has_the_letters_of(picture: &Picture, buffer: &Buffer, what: &str) {
    let mut n_letters = 0;
    for y in 0..buffer.area.height {
        for x in 0..buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            if symbol.trim().is_empty() || is_shape(symbol) {
                continue;
            }
            let found = picture.letters.get(&(u32::from(x), u32::from(y)));
            assert_eq!(found.map(String::as_str), Some(symbol), "{what} {x} {y}");
            n_letters += 1;
        }
    }
    assert_eq!(picture.letters.len(), n_letters, "{what}");
}

/// Every half of a cell whose colour the frame gives has that colour in the picture.
fn has_the_colours_of(picture: &Picture, buffer: &Buffer, what: &str) -> usize {
    let mut n_halves = 0;
    for y in 0..buffer.area.height {
        for x in 0..buffer.area.width {
            let cell = &buffer[(x, y)];
            if cell.modifier.contains(Modifier::REVERSED) {
                continue;
            }
            let halves = match cell.symbol() {
                "▀" => [cell.fg, cell.bg],
                "▄" => [cell.bg, cell.fg],
                "█" => [cell.fg; 2],
                _ => [cell.bg; 2],
            };
            for (half, colour) in [0.0, 8.0].into_iter().zip(halves) {
                let Some(expected) = hex(colour) else {
                    continue;
                };
                // In the corner of the half: lines under letters and bars of eighths are elsewhere.
                let found =
                    picture.fill_at(f64::from(x) * 8.0 + 7.5, f64::from(y) * 16.0 + half + 0.5);
                assert_eq!(found, expected, "{what} {x} {y} {half}");
                n_halves += 1;
            }
        }
    }
    n_halves
}

#[test]
fn the_picture_is_what_is_on_screen_in_every_panel_and_with_everything_over_it() {
    for size in [(80, 24), (120, 40), (200, 60)] {
        let mut screen = demo(size);
        let check = |screen: &mut Screen, what: &str| -> usize {
            let export = Export::of(&screen.app, false).expect("an export");
            let picture = Picture::read(&export.picture);
            let buffer = screen.frame();
            has_the_letters_of(&picture, &buffer, what);
            has_the_colours_of(&picture, &buffer, what)
        };
        for panel in screen.app.panels() {
            screen.go(panel);
            let n_coloured = check(&mut screen, panel.title());
            let has_map = matches!(panel, Panel::Overview | Panel::Head | Panel::Tokens);
            assert!(!has_map || n_coloured > 100, "{panel:?}: {n_coloured}");
        }
        for keys in ["?", "/L1", "e<&>"] {
            screen.typed(keys);
            check(&mut screen, keys);
            screen.key(KeyCode::Esc);
        }
    }
}

#[test]
fn a_page_without_colours_and_a_light_one_show_the_same_letters() {
    let mut screen = demo((80, 24));
    for theme in [
        Theme::on(Ground::Light, Depth::Truecolor),
        Theme::on(Ground::Light, Depth::None),
        Theme::on(Ground::Dark, Depth::Indexed),
    ] {
        screen.app.theme = theme;
        screen.go(Panel::Head);
        let export = Export::of(&screen.app, false).expect("an export");
        let picture = Picture::read(&export.picture);
        has_the_letters_of(&picture, &screen.frame(), "head");
        let expected = match screen.app.theme.ground {
            Ground::Light => "#ffffff",
            Ground::Dark => "#111319",
        };
        assert_eq!(picture.fill_at(-4.0, -4.0), expected);
    }
}

#[test]
fn a_picture_says_what_it_is_of() {
    let mut screen = demo((120, 40));
    screen.typed("]]]");
    screen.go(Panel::Head);
    let export = Export::of(&screen.app, false).expect("an export");
    let picture = Picture::read(&export.picture);
    assert_eq!(picture.title, "attnscope · Head · induction-demo · L0H3");
    for words in [TEXT, "120 by 40", "L0H3, query", "22 tokens"] {
        assert!(
            picture.description.contains(words),
            "{}",
            picture.description
        );
    }
}

#[test]
fn x_writes_picture_and_data_beside_each_other_and_shows_their_names() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut screen = demo((120, 40));
    screen.exports = Some(directory.path().to_owned());
    for panel in screen.app.panels() {
        screen.go(panel);
        screen.typed("x");
        assert!(screen.text().contains(".svg and "), "{}", screen.text());
    }
    let names = [
        "checks",
        "compare-L0H0",
        "effect-L0H0-attribution-21",
        "head-L0H0-pattern",
        "model",
        "overview-entropy-relative",
        "rows-L0H0",
        "scores-L0H0",
        "sweep-L0H0-query-21",
        "tokens-L0H0-given-by-21",
    ];
    let expected: Vec<String> = names
        .iter()
        .flat_map(|name| ["csv", "svg"].map(|ending| format!("induction-demo-{name}.{ending}")))
        .collect();
    assert_eq!(files(directory.path()), expected);
    // The line is gone with the next key, and not part of the next picture.
    screen.typed("x");
    let last = directory
        .path()
        .join("induction-demo-sweep-L0H0-query-21-2.svg");
    let picture = Picture::read(&std::fs::read(last).expect("written"));
    let footer = picture.line(39);
    assert!(
        footer.contains("quit") && !footer.contains("wrote"),
        "{footer}"
    );
    screen.key(KeyCode::Down);
    assert!(!screen.text().contains("wrote"));
}

#[test]
fn nothing_is_ever_written_over() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut screen = demo((80, 24));
    screen.exports = Some(directory.path().to_owned());
    screen.go(Panel::Model);
    screen.typed("x");
    let first = directory.path().join("induction-demo-model.svg");
    std::fs::write(&first, "mine now").expect("writes");
    screen.typed("xx");
    assert_eq!(std::fs::read(&first).expect("reads"), b"mine now");
    let stems = ["", "-2", "-3"];
    let mut expected: Vec<String> = stems
        .iter()
        .flat_map(|n| ["csv", "svg"].map(|ending| format!("induction-demo-model{n}.{ending}")))
        .collect();
    expected.sort();
    assert_eq!(files(directory.path()), expected);
}

#[test]
fn where_nothing_can_be_written_one_line_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("gone");
    let mut screen = demo((80, 24));
    screen.exports = Some(missing);
    screen.typed("x");
    let notice = screen.app.notice.clone().expect("a notice");
    assert!(
        notice.contains("cannot be written") && !notice.contains('\n'),
        "{notice}"
    );
    assert!(files(directory.path()).is_empty());
}

#[test]
fn over_the_panels_x_writes_too_and_control_s_while_text_is_edited() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut screen = demo((120, 40));
    screen.exports = Some(directory.path().to_owned());
    let control_s = KeyEvent::new(KeyCode::Char('s'), KeyModifiers::CONTROL);
    screen.typed("?x");
    assert!(screen.text().contains("any other key closes"), "still open");
    screen.key(KeyCode::Esc);
    screen.typed("ex");
    assert!(screen.app.written.is_none(), "x is a letter here");
    screen.send(Msg::Key(control_s));
    assert!(screen.text().contains("wrote "), "{}", screen.text());
    screen.key(KeyCode::Esc);
    screen.typed("/x");
    screen.send(Msg::Key(control_s));
    screen.key(KeyCode::Esc);
    let svgs: Vec<String> = files(directory.path())
        .into_iter()
        .filter(|name| name.ends_with(".svg"))
        .collect();
    let expected = ["edit", "filter", "help"]
        .map(|what| format!("induction-demo-overview-entropy-relative-{what}.svg"));
    assert_eq!(svgs, expected);
}

#[test]
fn a_terminal_too_small_to_show_anything_is_not_written() {
    let mut screen = demo((80, 24));
    screen.resize(40, 12);
    let effects = screen
        .app
        .update(Msg::Key(KeyEvent::from(KeyCode::Char('x'))));
    assert!(effects.is_empty());
    assert!(screen.app.notice.is_some());
}

#[test]
fn what_is_there_is_written_before_the_checkpoint_is_open_and_while_it_runs() {
    let (sender, events) = mpsc::channel();
    let first = Box::new(|_: &_, _| Ok((Request::text(TEXT), PromptOrigin::Asked)));
    let sink = Arc::new(move |event| drop(sender.send(event)));
    let theme = Theme::new(Depth::Truecolor);
    let mut app = App::new(theme, (120, 40), "somewhere/a model".to_owned());
    let shows = |app: &mut App, words: &str| {
        for panel in Panel::ALL {
            app.panel = panel;
            let effects = app.update(Msg::Key(KeyEvent::from(KeyCode::Char('x'))));
            assert!(effects.contains(&Effect::Export));
            let export = Export::of(app, false).expect("an export");
            let letters = Picture::read(&export.picture).letters;
            let text: String = letters.values().map(String::as_str).collect();
            assert!(!text.is_empty());
            let header = csv::Reader::from_reader(export.csv.as_slice());
            header
                .into_records()
                .for_each(|row| drop(row.expect("a row")));
            assert!(export.name.starts_with(words), "{}", export.name);
        }
    };
    shows(&mut app, "a-model-");
    let opening = Opening {
        bundle: Some(&BUNDLES[0]),
        ..Opening::default()
    };
    let worker = Worker::start(
        opening,
        first,
        Terms {
            is_forced: true,
            ..Terms::default()
        },
        sink,
    );
    let mut n_layers = 0;
    while n_layers == 0 {
        let event = events.recv().expect("the worker answers");
        n_layers += usize::from(matches!(event, Event::Layer { .. }));
        app.update(Msg::Worker(event));
    }
    shows(&mut app, "induction-demo-");
    app.panel = Panel::Overview;
    let export = Export::of(&app, false).expect("an export");
    let table = String::from_utf8(export.csv).expect("UTF-8");
    let of_heads = table.lines().filter(|line| line.starts_with("head,"));
    assert_eq!(of_heads.count(), 4, "the heads of one layer");
    drop(worker);
}

#[test]
fn of_a_map_too_long_to_hold_single_cells_in_view_are_written() {
    let path = testing::root().join("fixtures/oracle/llama/model");
    let opening = Opening {
        set: vec![("n_ctx".to_owned(), "8192".to_owned())],
        ..Opening::from(Some(path))
    };
    let tokens = (0..4200).map(|i| (i * 7 + i / 50) % 90 + 3).collect();
    let mut screen = Screen::open(opening, Request::ids(tokens), (120, 40), Depth::Truecolor);
    screen.key(KeyCode::Enter);
    let pooled = Export::of(&screen.app, false).expect("an export").csv;
    for cell in testing::tables::part(&pooled, "cell").iter().take(100) {
        let n = cell.index("query_last") - cell.index("query") + 1;
        assert!(n >= 2 || cell.index("query_last") == 4199, "{cell:?}");
    }
    while screen.app.scene().pooling() > 1 {
        screen.typed("+");
    }
    // In the middle of the text: all four cells of a pooled one are in view.
    (0..10).for_each(|_| screen.key(KeyCode::PageUp));
    screen.typed("jjj");
    let single = Export::of(&screen.app, false).expect("an export").csv;
    let cells = testing::tables::part(&single, "cell");
    assert!(cells.len() > 1000);
    for cell in &cells {
        assert_eq!(cell.index("query"), cell.index("query_last"));
        assert_eq!(cell.index("key"), cell.index("key_last"));
    }
    // The row beside the map is still pooled: each of its cells is the largest of those it covers.
    let scores: BTreeMap<(usize, usize), f64> = cells
        .iter()
        .map(|cell| {
            (
                (cell.index("query"), cell.index("key")),
                cell.number("score"),
            )
        })
        .collect();
    let mut n_compared = 0;
    for pooled in testing::tables::part(&single, "row") {
        let queries = pooled.index("query")..=pooled.index("query_last");
        let keys = pooled.index("key")..=pooled.index("key_last");
        let covered = queries.flat_map(|query| keys.clone().map(move |key| (query, key)));
        let covered: Option<Vec<f64>> = covered.map(|at| scores.get(&at).copied()).collect();
        let Some(covered) = covered else {
            continue;
        };
        let largest = covered.into_iter().fold(f64::NEG_INFINITY, f64::max);
        let found = pooled.number("score");
        let is_near = found == largest || (found - largest).abs() < 1e-4;
        assert!(is_near, "{found} {largest}");
        n_compared += 1;
    }
    assert!(n_compared > 10, "{n_compared}");
}
