//! The Checks panel: findings that are alike are one line that unfolds; what was not tested is counted, stands right under the
//! findings, and is tested by a key or by itself.

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

/// A checkpoint of a training that has collapsed: 3 heads of L0 are an error, and 4 more findings of heads are alike.
fn collapsed(size: (u16, u16)) -> Screen {
    let path = Some(fixture("history/step-400.safetensors"));
    let text = "the king took a quiet story in the night . a big cat sang in the green city .";
    let text = Request::text(text);
    let mut screen = Screen::open(path, text, size, Depth::Truecolor);
    screen.go(Panel::Checks);
    screen
}

/// Row of the screen on which a text stands.
fn row_of(text: &str, wanted: &str) -> u16 {
    let row = text.lines().position(|line| line.contains(wanted));
    u16::try_from(row.unwrap_or_else(|| panic!("no {wanted}: {text}"))).expect("a row")
}

#[test]
fn findings_that_are_alike_are_one_line_with_their_number_and_the_worst() {
    for size in [(80, 24), (120, 40), (200, 60)] {
        let mut screen = collapsed(size);
        let text = screen.text();
        let first = listed(&text)[0].to_owned();
        assert!(
            first.contains("▸✖ entropy-collapse   3 heads, worst L0H2"),
            "{text}"
        );
        assert!(
            text.contains("9 errors, 6 warnings in "),
            "findings are counted: {text}"
        );
        assert!(
            text.contains("L0H1-3 (3 heads)") && text.contains("worst at L0H2: "),
            "{text}"
        );
        // What does not fit below the list stands on the page.
        screen.typed("i");
        let page = screen.text();
        assert!(
            page.contains("where: L0H1-3 (3 heads)") && page.contains("do: "),
            "{page}"
        );
        screen.key(KeyCode::Esc);
        // The marks of the heads are those of the single findings.
        let marks = &screen.app.runs.a.as_ref().expect("a run").marks;
        assert!((1..4).all(|head| marks.contains_key(&(
            attnscope_spec::Stack::Only,
            0,
            Some(head)
        ))));
        screen.key(KeyCode::Right);
        let text = screen.text();
        let lines = listed(&text);
        assert!(lines[0].contains("▾✖ entropy-collapse"), "{text}");
        for (line, head) in lines[1..4].iter().zip(1..) {
            assert!(
                line.contains(&format!(" ✖                    L0H{head} ")),
                "{text}"
            );
        }
        // Once more goes into the group; Enter there opens the head.
        screen.key(KeyCode::Right);
        screen.key(KeyCode::Down);
        screen.key(KeyCode::Enter);
        assert_eq!(
            (screen.app.panel, screen.app.selection.head().to_string()),
            (Panel::Head, "L0H2".to_owned())
        );
        screen.key(KeyCode::Esc);
        screen.key(KeyCode::Left);
        assert!(
            listed(&screen.text())[0].contains("▸✖"),
            "{}",
            screen.text()
        );
        assert_eq!(
            screen.app.checks_view.line_idx, 0,
            "the group that was folded is selected"
        );
        screen.key(KeyCode::Enter);
        assert!(
            listed(&screen.text())[0].contains("▾✖"),
            "{}",
            screen.text()
        );
    }
}

#[test]
fn a_filter_finds_single_findings_of_a_group_and_what_it_found_stays_in_sight() {
    let mut screen = collapsed((120, 40));
    screen.typed("/L0H3 error");
    screen.key(KeyCode::Enter);
    let text = screen.text();
    let lines: Vec<&str> = listed(&text)
        .into_iter()
        .filter(|line| line.contains('▕'))
        .collect();
    assert!(lines.len() > 1, "{text}");
    assert!(
        lines
            .iter()
            .all(|line| line.contains(" L0H3 ") && line.contains("✖ ")),
        "{text}"
    );
    assert!(
        lines[0].contains("entropy-collapse") && lines[1].contains("score-explosion"),
        "{text}"
    );
    screen.typed("n");
    let found = screen.app.checks_view.line_idx;
    screen.key(KeyCode::Esc);
    let text = screen.text();
    assert_eq!(screen.app.checks_view.line_idx, found);
    assert!(
        text.contains("▾✖ score-explosion") && text.contains("▸✖ entropy-collapse"),
        "{text}"
    );
    // A group is of the findings that match.
    screen.typed("/collapse !L0H2");
    screen.key(KeyCode::Enter);
    assert!(
        screen
            .text()
            .contains("▸✖ entropy-collapse   2 heads, worst L0H"),
        "{}",
        screen.text()
    );
}

#[test]
fn the_second_click_on_a_group_unfolds_it_and_the_palette_leads_to_a_finding_in_it() {
    let mut screen = collapsed((120, 40));
    let row = row_of(&screen.text(), "✖ score-explosion");
    screen.click(20, row);
    assert!(
        screen.text().contains("▸✖ score-explosion"),
        "{}",
        screen.text()
    );
    screen.click(20, row);
    let text = screen.text();
    assert!(text.contains("▾✖ score-explosion"), "{text}");
    screen.click(20, row_of(&text, " ✖                    L0H1 "));
    screen.key(KeyCode::Enter);
    assert_eq!(screen.app.selection.head().to_string(), "L0H1");
    let mut screen = collapsed((120, 40));
    screen.typed(":entropy-collapse L0H3");
    screen.key(KeyCode::Enter);
    let text = screen.text();
    assert!(text.contains("▾✖ entropy-collapse"), "{text}");
    screen.key(KeyCode::Enter);
    assert_eq!(screen.app.selection.head().to_string(), "L0H3");
}
