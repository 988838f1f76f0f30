//! The Checks panel: what was not tested is counted, stands right under the findings, and is tested by a key or by itself.

use attnscope_checkpoint::Opening;
use attnscope_checks::Tester;
use attnscope_prompt::Request;
use attnscope_screen::{Depth, Panel};
use crossterm::event::KeyCode;
use testing::judged::fixture;
use testing::screen::Screen;

const STORY: &str = "the king took a quiet story in the night . a big cat sang in the green city . \
     it sat under the lake and saw a red mat with a big boy in the morning and saw the mat .";

fn checks(size: (u16, u16)) -> Screen {
    let path = Some(fixture("degenerate"));
    let mut screen = Screen::open(path, Request::text(STORY), size, Depth::Truecolor);
    screen.go(Panel::Checks);
    screen
}

/// Lines of the list: everything in the upper box.
fn listed(text: &str) -> Vec<&str> {
    let lines = text.lines().skip_while(|line| !line.starts_with('┌'));
    let lines = lines.skip(1).take_while(|line| !line.starts_with('└'));
    lines.collect()
}

/// Checks that were not tested and that the screen can test.
fn n_to_run(screen: &Screen) -> usize {
    let judgement = screen
        .app
        .runs
        .a
        .as_ref()
        .and_then(|run| run.judgement.as_ref());
    let verdicts = judgement.expect("judged").verdicts.iter();
    verdicts
        .filter(|(_, verdict)| verdict.would_test == Some(Tester::Probes))
        .count()
}

#[test]
fn what_was_not_tested_is_counted_and_stands_right_under_the_findings() {
    for size in [(80, 24), (120, 40), (200, 60)] {
        let mut screen = checks(size);
        let (text, n) = (screen.text(), n_to_run(&screen));
        assert!(n > 5, "{text}");
        assert!(
            text.contains(&format!(
                "0 errors in 13 checks run · {n} not tested: p tests them"
            )),
            "{text}"
        );
        let lines = listed(&text);
        let first = lines.iter().position(|line| line.contains('○'));
        let first = first.expect("a check that was not run");
        // Findings alone come before.
        assert!(
            lines[..first].iter().all(|line| line.contains('▕')),
            "{text}"
        );
        assert!(lines[first].contains("not tested"), "{text}");
        screen.key(KeyCode::Char('p'));
        let text = screen.text();
        assert_eq!(n_to_run(&screen), 0, "{text}");
        assert!(text.contains("1 error in 22 checks run"), "{text}");
        assert!(!text.contains("not tested: p"), "{text}");
        assert!(listed(&text)[0].contains("trained-otherwise"), "{text}");
    }
}

#[test]
fn only_what_could_have_failed_has_a_tick() {
    let mut screen = checks((120, 60));
    screen.key(KeyCode::Char('p'));
    let text = screen.text();
    let of = |check: &str| {
        let lines = listed(&text).into_iter();
        let mut lines = lines.filter(|line| line.contains(&format!(" {check} ")));
        lines.next().expect("a line of the check").to_owned()
    };
    assert!(of("nan-or-inf").contains('✓'), "{text}");
    for check in ["wrong-axis", "row-sum", "future-leak"] {
        let line = of(check);
        assert!(line.contains("◌ ") && !line.contains('✓'), "{line}");
    }
    assert!(of("pad-mass").contains('–'), "{text}");
}

#[test]
fn a_small_model_is_asked_by_itself_once_for_each_text() {
    let mut screen = checks((120, 40));
    let is_probed = |screen: &Screen| screen.app.runs.a.as_ref().is_some_and(|run| run.is_probed);
    assert!(!is_probed(&screen), "pictures and tests ask for it");
    screen.app.asks_by_itself = true;
    screen.key(KeyCode::Down);
    assert!(is_probed(&screen));
    let text = screen.text();
    assert!(text.contains("1 error in 22 checks run"), "{text}");
    // Another text is another run.
    screen.typed("e the cat ");
    screen.key(KeyCode::Enter);
    assert!(is_probed(&screen));
}

#[test]
fn a_run_that_is_not_small_waits_for_the_key() {
    let opening = Opening {
        set: vec![("n_ctx".to_owned(), "8192".to_owned())],
        ..Opening::from(Some(testing::root().join("fixtures/oracle/llama/model")))
    };
    let tokens = (0..7000).map(|nth| (nth * 7 + nth / 50) % 90 + 3).collect();
    let mut screen = Screen::open(opening, Request::ids(tokens), (120, 40), Depth::Truecolor);
    screen.app.asks_by_itself = true;
    screen.go(Panel::Checks);
    let run = screen.app.runs.a.as_ref().expect("a run");
    assert!(run.was_considered && !run.is_probed && run.probing.is_none());
    assert!(screen.text().contains("not tested: p tests them"));
}
