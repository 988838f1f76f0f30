//! What a terminal says of itself, and what a session leaves for the next one: the built program on a terminal.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use testing::pty::Terminal;

/// A terminal of all colours with the program in it, given some words.
fn start(words: &[&str], variables: &[(&str, &str)], directory: &Path) -> Terminal {
    let program = testing::program();
    let mut arguments = vec![program.to_str().expect("a path")];
    arguments.extend(words);
    let variables = [&[("COLORTERM", "truecolor")], variables].concat();
    Terminal::start(&arguments, &variables, directory, (100, 30))
}

/// The first letter of a frame's title, which is bold: on the third row, or in the Overview on the fourth.
fn title_cell(screen: &vt100::Screen) -> Option<&vt100::Cell> {
    let cells = [2, 3].into_iter().filter_map(|row| screen.cell(row, 2));
    cells.into_iter().find(|cell| cell.bold())
}

/// The colour of the first letter of a frame's title: dark and light themes have different ones.
fn title_colour(terminal: &Terminal) -> vt100::Color {
    let found = Cell::new(vt100::Color::Default);
    let shown = terminal.until(Duration::from_secs(10), |screen| {
        screen.contents().contains("3 notes") && title_cell(screen).is_some()
    });
    assert!(shown.is_some(), "{}", terminal.text());
    terminal.until(Duration::ZERO, |screen| {
        let cell = title_cell(screen);
        found.set(cell.map_or(vt100::Color::Default, vt100::Cell::fgcolor));
        true
    });
    found.get()
}

const DARK: vt100::Color = vt100::Color::Rgb(94, 201, 225);
const LIGHT: vt100::Color = vt100::Color::Rgb(0, 108, 148);

#[test]
fn a_light_background_is_told_by_the_terminal_and_keys_around_the_answer_are_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut terminal = start(&[], &[], directory.path());
    terminal.send(b"5\x1b]11;rgb:fdfd/f6f6/e3e3\x07\x1b[?62;4c2");
    assert_eq!(title_colour(&terminal), LIGHT);
    terminal.shows("› Head");
    terminal.send(b"\x1b");
    terminal.shows("› Model");
    terminal.send(b"q");
    assert_eq!(terminal.ends().code(), Some(0));
    assert_eq!(terminal.not_restored(), [""; 0]);
}

#[test]
fn a_terminal_that_answers_after_the_first_frame_is_drawn_again_in_its_colours() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut terminal = start(&[], &[], directory.path());
    assert_eq!(title_colour(&terminal), DARK);
    terminal.send(b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\\x1b[?62;4c");
    let is_light =
        |screen: &vt100::Screen| title_cell(screen).is_some_and(|cell| cell.fgcolor() == LIGHT);
    let shown = terminal.until(Duration::from_secs(10), is_light);
    assert!(shown.is_some(), "{}", terminal.text());
    terminal.send(b"q");
    assert_eq!(terminal.ends().code(), Some(0));
}

#[test]
fn a_terminal_that_answers_much_later_is_taken_for_dark_and_the_answer_is_no_key() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut terminal = start(&[], &[], directory.path());
    assert_eq!(title_colour(&terminal), DARK);
    std::thread::sleep(Duration::from_millis(3200));
    terminal.send(b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\");
    terminal.send(b"2");
    terminal.shows("› Head");
    assert_eq!(title_colour(&terminal), DARK);
    // The letters of the answer would have set bookmarks.
    assert!(!terminal.text().contains("bookmark"), "{}", terminal.text());
    terminal.send(b"q");
    assert_eq!(terminal.ends().code(), Some(0));
}

#[test]
fn whoever_chooses_a_theme_gets_it_whatever_the_terminal_says() {
    let directory = tempfile::tempdir().expect("a directory");
    for (words, variables) in [
        (&["--theme", "light"][..], &[][..]),
        (&[], &[("ATTNSCOPE_BACKGROUND", "light")]),
    ] {
        let terminal = start(words, variables, directory.path());
        terminal.send(b"\x1b]11;rgb:0000/0000/0000\x07");
        assert_eq!(title_colour(&terminal), LIGHT);
    }
}

#[test]
fn a_session_goes_on_where_it_ended() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path().join("state");
    let variables = [
        ("XDG_STATE_HOME", state.to_str().expect("a path")),
        ("ATTNSCOPE_HISTORY", "true"),
    ];
    let checkpoint = testing::root().join("fixtures/healthy");
    let checkpoint = checkpoint.to_str().expect("a path");
    let mut first = start(
        &[checkpoint, "--tokens", "5,9,2,7,5,9"],
        &variables,
        directory.path(),
    );
    first.shows("6 tokens");
    first.send(b"]]]b2");
    first.shows("› Head › L0 › H3");
    first.send(b"q");
    assert_eq!(first.ends().code(), Some(0));
    // Without a checkpoint, the last session's is opened.
    let mut second = start(&["--resume"], &variables, directory.path());
    second.shows("› Head › L0 › H3");
    second.shows("6 tokens");
    second.send(b"'");
    second.shows("Overview · L0H3");
    second.send(b"\x03");
    assert_eq!(second.ends().code(), Some(0));
    let refused = start(&["--resume", "--no-history"], &variables, directory.path());
    refused.shows("--resume: sessions are not read with --no-history");
    let none = [("XDG_STATE_HOME", "/nowhere")];
    let refused = start(&["--resume"], &none, directory.path());
    refused.shows("--resume: no session was kept yet");
}
