//! The strip of runs: any run of the session is shown again as A, any other as B, without running where it is kept.

use attnscope_prompt::Request;
use attnscope_screen::{Depth, Effect, Msg, Panel, Shows};
use crossterm::event::{KeyCode, KeyEvent};
use testing::screen::Screen;

const TEXT: &str = "the old king gave a red apple to the old king";

fn demo(size: (u16, u16)) -> Screen {
    Screen::open(None, Request::text(TEXT), size, Depth::None)
}

fn suppose(screen: &mut Screen, words: &str) {
    screen.typed("w");
    screen.typed(words);
    screen.key(KeyCode::Enter);
}

/// The line of the strip; empty where there is none.
fn strip(screen: &mut Screen) -> String {
    let text = screen.text();
    let line = text.lines().find(|line| line.starts_with(" runs "));
    line.unwrap_or_default().to_owned()
}

/// The losses of A and B.
fn losses(screen: &Screen) -> [f64; 2] {
    let runs = screen.app.scene().both_runs().expect("both have begun");
    runs.map(|run| {
        let of = run.outcome().expect("it is over");
        of.predictions
            .as_ref()
            .and_then(|p| p.loss)
            .expect("a loss")
    })
}

#[test]
fn any_two_runs_of_the_session_are_paired() {
    let mut screen = demo((120, 40));
    assert_eq!(strip(&mut screen), "");
    suppose(&mut screen, "temperature=3");
    // Two runs, both on screen: the header says all of it.
    assert_eq!(strip(&mut screen), "");
    let [plain, soft] = losses(&screen);
    screen.typed("W");
    suppose(&mut screen, "mask=none");
    let [_, open] = losses(&screen);
    let line = strip(&mut screen);
    for part in ["A 1 “", "2 temperature=3", "B 3 mask=none"] {
        assert!(line.contains(part), "{line}");
    }
    // One what-if beside another: neither is the checkpoint as it is.
    screen.typed("A");
    assert_eq!(losses(&screen), [soft, open]);
    let text = screen.text();
    assert!(text.contains("A: temperature=3"), "{text}");
    assert!(strip(&mut screen).contains("A 2 temperature=3"));
    assert_eq!(screen.app.runs.shows, Shows::B);
    // The run that is the other side changes places.
    screen.typed("V");
    screen.key(KeyCode::Down);
    screen.key(KeyCode::Enter);
    assert_eq!(losses(&screen), [open, soft]);
    screen.typed("B");
    assert_eq!(losses(&screen), [open, plain]);
    let text = screen.text();
    assert!(text.contains("AGAINST the checkpoint as it is"), "{text}");
    // All of it can be undone, and the maps of both sides are there.
    screen.typed("u");
    assert_eq!(losses(&screen), [open, soft]);
    screen.go(Panel::Head);
    assert!(screen.app.scene().difference().is_some());
    // A new text is run by the checkpoint as it is.
    screen.typed("We gave");
    screen.key(KeyCode::Enter);
    assert!(!screen.text().contains("A: "));
}

#[test]
fn the_last_runs_are_shown_again_without_running() {
    let mut screen = demo((120, 40));
    for word in [" and", " then", " he", " went", " home", " again"] {
        screen.typed("e");
        screen.typed(word);
        screen.key(KeyCode::Enter);
    }
    let n_tokens = |screen: &Screen| screen.app.runs.a.as_ref().map(|a| a.prompt.tokens.len());
    assert_eq!(n_tokens(&screen), Some(17));
    // Of texts that begin alike, the strip has what follows.
    let line = strip(&mut screen);
    assert!(line.contains("home again”"), "{line}");
    // Older runs than the last few are run again, with the same result.
    let first = screen.app.runs.seen[0].loss;
    for nth in [5, 0] {
        screen.typed("V");
        for _ in 0..6 {
            screen.key(KeyCode::Up);
        }
        for _ in 0..nth {
            screen.key(KeyCode::Down);
        }
        screen.key(KeyCode::Enter);
        assert_eq!(n_tokens(&screen), Some(11 + nth));
        assert!(
            screen
                .app
                .runs
                .a
                .as_ref()
                .is_some_and(|a| a.judgement.is_some())
        );
    }
    assert_eq!(screen.app.runs.seen[0].loss, first);
    assert_eq!(screen.app.runs.seen.len(), 7);
    // What is asked of the worker is the run, not its text.
    let asked = screen
        .app
        .update(Msg::Key(KeyEvent::from(KeyCode::Char('A'))));
    assert!(matches!(asked[0], Effect::Again(_, false)), "{asked:?}");
}

#[test]
fn the_strip_takes_a_click_and_leaves_small_terminals_their_rows() {
    let mut screen = demo((120, 40));
    suppose(&mut screen, "temperature=3");
    screen.typed("W");
    let line = strip(&mut screen);
    let (before, _) = line.split_once("temperature").expect("the what-if");
    screen.click(before.chars().count() as u16, 38);
    assert!(strip(&mut screen).contains("A 2 temperature=3"));
    screen.resize(80, 24);
    assert_eq!(strip(&mut screen), "");
}
