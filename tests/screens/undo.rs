//! Back and forward through views, undo and redo of texts and what-ifs, and what-ifs switched off one by one.

use attnscope_prompt::Request;
use attnscope_screen::{Axis, Depth, Msg, Panel};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use testing::screen::Screen;

const TEXT: &str = "the old king gave a red apple to the old king";

fn demo() -> Screen {
    Screen::open(None, Request::text(TEXT), (120, 40), Depth::None)
}

fn held(screen: &mut Screen, code: KeyCode, modifiers: KeyModifiers) {
    screen.send(Msg::Key(KeyEvent::new(code, modifiers)));
}

fn suppose(screen: &mut Screen, words: &str) {
    screen.typed("w");
    screen.typed(words);
    screen.key(KeyCode::Enter);
}

/// The what-ifs that B runs with, as the header has them.
fn supposed(screen: &mut Screen) -> String {
    let second = screen.app.runs.b.as_ref();
    second.map_or(String::new(), |second| second.way.words())
}

#[test]
fn views_are_gone_back_and_forward_through_with_their_place() {
    let mut screen = demo();
    let back = |screen: &mut Screen| held(screen, KeyCode::Left, KeyModifiers::ALT);
    let forward = |screen: &mut Screen| held(screen, KeyCode::Right, KeyModifiers::ALT);
    screen.typed("lj");
    let first = (screen.app.panel, screen.app.selection);
    screen.typed("4kk");
    let second = (screen.app.panel, screen.app.selection);
    screen.typed(":L0H0");
    screen.key(KeyCode::Enter);
    screen.typed("6");
    back(&mut screen);
    back(&mut screen);
    assert_eq!((screen.app.panel, screen.app.selection), second);
    back(&mut screen);
    assert_eq!((screen.app.panel, screen.app.selection), first);
    forward(&mut screen);
    assert_eq!((screen.app.panel, screen.app.selection), second);
    forward(&mut screen);
    forward(&mut screen);
    assert_eq!(screen.app.panel, Panel::Checks);
    forward(&mut screen);
    assert!(
        screen.text().contains("no view after this one"),
        "{}",
        screen.text()
    );
}

#[test]
fn texts_and_what_ifs_are_undone_and_redone() {
    let mut screen = demo();
    let n_tokens = |screen: &Screen| screen.app.scene().n_along(Axis::Query);
    let redo = |screen: &mut Screen| held(screen, KeyCode::Char('r'), KeyModifiers::CONTROL);
    screen.typed("u");
    assert!(
        screen.text().contains("nothing to undo"),
        "{}",
        screen.text()
    );
    suppose(&mut screen, "temperature=3");
    suppose(&mut screen, "drop=zero@L1H0");
    screen.typed("e gave");
    screen.key(KeyCode::Enter);
    assert_eq!(n_tokens(&screen), 12);
    assert_eq!(supposed(&mut screen), "temperature=3, drop=zero@L1H0");
    screen.typed("u");
    assert_eq!(n_tokens(&screen), 11);
    assert_eq!(supposed(&mut screen), "temperature=3, drop=zero@L1H0");
    let runs = screen.app.scene().both_runs().expect("both ran again");
    assert!(runs.iter().all(|run| run.outcome().is_some()));
    screen.typed("u");
    assert_eq!(supposed(&mut screen), "temperature=3");
    screen.typed("u");
    assert!(supposed(&mut screen).is_empty());
    redo(&mut screen);
    redo(&mut screen);
    assert_eq!(supposed(&mut screen), "temperature=3, drop=zero@L1H0");
    redo(&mut screen);
    assert_eq!(n_tokens(&screen), 12);
    // W is undone like any other change.
    screen.typed("W");
    assert!(supposed(&mut screen).is_empty());
    screen.typed("u");
    assert_eq!(supposed(&mut screen), "temperature=3, drop=zero@L1H0");
    // A new change leaves nothing to redo.
    suppose(&mut screen, "mask=none");
    redo(&mut screen);
    assert!(
        screen.text().contains("nothing to redo"),
        "{}",
        screen.text()
    );
}

#[test]
fn what_ifs_are_switched_off_and_on_one_by_one() {
    let mut screen = demo();
    suppose(&mut screen, "temperature=3");
    suppose(&mut screen, "drop=zero@L1H0");
    screen.typed("w");
    let text = screen.text();
    assert!(
        text.contains("● temperature=3") && text.contains("● drop=zero@L1H0"),
        "{text}"
    );
    screen.key(KeyCode::Up);
    screen.key(KeyCode::Up);
    screen.typed(" ");
    assert!(
        screen.text().contains("○ temperature=3"),
        "{}",
        screen.text()
    );
    screen.key(KeyCode::Esc);
    assert_eq!(supposed(&mut screen), "drop=zero@L1H0");
    // From the palette it is switched on again.
    screen.typed(":switch on temperature");
    screen.key(KeyCode::Enter);
    assert_eq!(supposed(&mut screen), "temperature=3, drop=zero@L1H0");
    screen.typed("W");
    assert!(screen.app.runs.b.is_none());
    // All of them are still there, switched off; one is removed for good.
    screen.typed("w");
    assert!(
        screen.text().contains("○ drop=zero@L1H0"),
        "{}",
        screen.text()
    );
    screen.key(KeyCode::Up);
    screen.key(KeyCode::Delete);
    screen.typed("w");
    assert!(
        !screen.text().contains("drop=zero@L1H0"),
        "{}",
        screen.text()
    );
}

#[test]
fn what_was_on_screen_is_a_list_from_which_it_is_shown_as_a_or_as_b() {
    let mut screen = demo();
    suppose(&mut screen, "temperature=3");
    screen.typed("We gave");
    screen.key(KeyCode::Enter);
    screen.typed("V");
    let text = screen.text();
    assert!(text.contains("temperature=3 · loss"), "{text}");
    assert_eq!(text.matches(" run │").count(), 3, "{text}");
    // The first run, and beside it the second.
    screen.key(KeyCode::Up);
    screen.key(KeyCode::Up);
    screen.key(KeyCode::Enter);
    assert_eq!(screen.app.scene().n_along(Axis::Query), 11);
    assert!(screen.app.runs.b.is_none());
    screen.typed("Vtemperature");
    screen.key(KeyCode::Tab);
    assert_eq!(supposed(&mut screen), "temperature=3");
    let runs = screen.app.scene().both_runs().expect("both");
    assert!(runs.iter().all(|run| run.outcome().is_some()));
    // A run that is shown again is no new one.
    screen.typed("V");
    assert_eq!(screen.text().matches(" run │").count(), 3);
    screen.key(KeyCode::Esc);
    screen.typed("u");
    assert!(screen.app.runs.b.is_none());
    screen.typed("u");
    assert_eq!(screen.app.scene().n_along(Axis::Query), 12);
}
