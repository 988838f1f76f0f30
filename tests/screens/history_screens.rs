//! The History panel: a recorded training, a monitor's log, a directory of checkpoints as they arrive, and what keys do there.

use std::path::Path;

use attnscope_checks::stats::STATISTICS;
use attnscope_compute::error::Error;
use attnscope_history::{History, Origin, State, Update};
use attnscope_prompt::Request;
use attnscope_screen::{Depth, HistoryView, Msg, Panel, Reading as Read};
use crossterm::event::KeyCode;
use testing::judged::fixture;
use testing::screen::Screen;

use crate::history_parts::{Training, demo, files, log, of_view, says};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

fn shows(name: &str, (width, height): (u16, u16), screen: &mut Screen) {
    insta::assert_snapshot!(format!("{name}_{width}x{height}"), screen.picture());
}

#[test]
fn a_recorded_collapse() {
    for size in SIZES {
        let mut screen = demo(size, Depth::Truecolor);
        shows("history_demo", size, &mut screen);
    }
    let mut screen = demo((120, 40), Depth::None);
    shows("history_demo_without_colour", (120, 40), &mut screen);
}

#[test]
fn steps_are_numbered_at_equal_distances() {
    for size in SIZES {
        let mut screen = demo(size, Depth::Truecolor);
        let text = screen.text();
        let numbers = text.lines().nth(3).expect("the numbers of steps");
        let numbers = numbers
            .trim_matches('│')
            .split('│')
            .next()
            .unwrap_or_default();
        let numbers = numbers.split_whitespace().map(|word| word.parse::<u64>());
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().expect("numbers");
        let apart: Vec<u64> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(apart.len() > 2, "{numbers:?}");
        assert!(apart.iter().all(|of| *of == apart[0]), "{numbers:?}");
    }
}

#[test]
fn a_collapse_of_all_heads_is_one_finding() {
    let mut screen = demo((120, 40), Depth::Truecolor);
    let text = screen.text();
    let errors: Vec<&str> = text.lines().filter(|line| line.contains('✖')).collect();
    // The count in the header, and one line of the list.
    assert_eq!(errors.len(), 2, "{text}");
    assert!(errors[0].contains("1 error"));
    assert!(
        errors[1].contains("collapse of all 8 heads between step 250")
            && errors[1].contains("first in L1H0")
    );
    says(
        &mut screen,
        "entropy-collapse    L1H0 at 250, L0H2-3 at 270",
    );
    // `f` still goes through what each check found.
    screen.typed("fff");
    says(&mut screen, "3 of ");
    says(&mut screen, "score-explosion L0H1 begins at step 260");
}

#[test]
fn a_monitors_log() {
    for size in SIZES {
        let mut screen = log("jump", size, Depth::Truecolor);
        shows("history_log", size, &mut screen);
    }
    // Nothing runs here, and the last line offers no key of a map.
    let mut screen = log("jump", (80, 24), Depth::Truecolor);
    screen.typed("2");
    let text = screen.text();
    assert!(
        text.contains("nothing can") && !text.contains("hide first key"),
        "{text}"
    );
    // 81 records are more than a narrow strip has columns.
    let mut screen = log("jump", (80, 24), Depth::Truecolor);
    says(&mut screen, "relative entropy · least of 3 × 2 ─");
    screen.resize(120, 40);
    says(&mut screen, "relative entropy · least of 2 steps × 1 head");
    screen.resize(200, 60);
    says(&mut screen, "relative entropy · step × head");
}

#[test]
fn keys_walk_through_steps_and_heads() {
    let mut screen = log("jump", (120, 40), Depth::Truecolor);
    says(&mut screen, "step 400 · done");
    screen.key(KeyCode::Left);
    says(&mut screen, "step 395 · done");
    screen.typed("g");
    says(&mut screen, "step 0 · done");
    screen.key(KeyCode::Right);
    says(&mut screen, "step 5 · done");
    screen.typed("G");
    says(&mut screen, "step 400 · done");
    let head = |screen: &Screen| screen.app.selection.head().to_string();
    assert_eq!(head(&screen), "L0H0");
    screen.key(KeyCode::Down);
    assert_eq!(head(&screen), "L0H1");
    screen.typed("}");
    assert_eq!(head(&screen), "L1H1");
    screen.typed("]]]");
    assert_eq!(head(&screen), "L2H0");
    screen.key(KeyCode::Up);
    assert_eq!(head(&screen), "L1H3");
    // Statistics that the log lacks are passed over.
    screen.typed("nn");
    let known = STATISTICS[screen.app.statistic_idx].id;
    let of_log = [
        "entropy_relative",
        "entropy",
        "max_probability",
        "saturated_rows",
        "first_key_mass",
        "previous_mass",
        "score_std",
        "score_max",
        "max_abs_score",
        "q_norm",
        "k_norm",
    ];
    assert!(
        of_log.contains(&known) && known != "entropy_relative",
        "{known}"
    );
}

#[test]
fn a_log_says_why_it_opens_nothing() {
    let mut screen = log("jump", (120, 40), Depth::Truecolor);
    for key in [KeyCode::Enter, KeyCode::Char(' ')] {
        screen.key(key);
        says(&mut screen, "a monitor log holds statistics and no weights");
    }
    assert!(screen.app.runs.a.is_none() && screen.app.runs.b.is_none());
    for panel in Panel::ALL {
        if !matches!(panel, Panel::History | Panel::Story) {
            screen.go(panel);
            says(&mut screen, "monitor's log");
        }
    }
}

#[test]
fn eight_is_the_rows_and_h_the_history_always() {
    let mut screen = log("jump", (120, 40), Depth::Truecolor);
    screen.typed("9");
    assert_eq!(screen.app.panel, Panel::Effect);
    screen.typed("8");
    assert_eq!(screen.app.panel, Panel::Rows);
    screen.typed("T");
    assert_eq!(screen.app.panel, Panel::Sweep);
    screen.typed("H");
    assert_eq!(screen.app.panel, Panel::History);
    says(&mut screen, "7 Compare H History 8 Rows 9 Effect T Sweep");
    let text = Request::text("a big cat sat .");
    let mut screen = Screen::open(Some(fixture("healthy")), text, (120, 40), Depth::Truecolor);
    screen.typed("8");
    assert_eq!(screen.app.panel, Panel::Rows);
    screen.typed("H");
    says(&mut screen, "no training is open");
    assert_eq!(screen.app.panel, Panel::Rows);
}

#[test]
fn checkpoints_appear_as_they_are_read() {
    let steps = [0, 50, 100, 150, 200, 250];
    let training = Training::new(&steps);
    let empty = || {
        let history = History::new("runs".to_owned(), Origin::Checkpoints);
        let view = HistoryView::new(history, files());
        of_view(view, (120, 40), Depth::Truecolor)
    };
    let mut found = empty();
    shows("history_empty", (120, 40), &mut found);
    found.send(Msg::History(vec![training.found(&steps)]));
    says(&mut found, "reading 1 of 6");
    // In one message: how often findings are looked for is a matter of time.
    let mut screen = empty();
    let failed = State::Failed("wte.weight: 3 bytes are missing".to_owned());
    screen.send(Msg::History(vec![
        training.found(&steps),
        Update::State(training.at(250), State::Reading),
        training.read(250, 0.01),
        training.read(0, 0.9),
        Update::State(training.at(100), failed),
        Update::State(training.at(50), State::Reading),
    ]));
    shows("history_reading", (120, 40), &mut screen);
    says(&mut screen, "reading 4 of 6");
    let rest = [(50, 0.88), (150, 0.86), (200, 0.84)];
    let mut updates: Vec<Update> = rest
        .iter()
        .map(|(step, entropy)| training.read(*step, *entropy))
        .collect();
    updates.push(Update::State(training.at(0), State::Gone));
    updates.push(Update::State(training.at(50), State::Changed));
    updates.push(Update::CaughtUp);
    screen.send(Msg::History(updates));
    shows("history_read", (120, 40), &mut screen);
    says(&mut screen, "watching");
    says(&mut screen, "entropy-collapse L1H1 begins at step 250");
    // A new step appears by itself, and the last one stays selected.
    let more = Training::new(&[300]);
    screen.send(Msg::History(vec![
        more.found(&[300]),
        more.read(300, 0.01),
        Update::CaughtUp,
    ]));
    says(&mut screen, "step 300 · done");
    screen.typed("g");
    screen.key(KeyCode::Enter);
    says(&mut screen, "its files were deleted");
    // The newest of the first steps was opened when it was read.
    let a = screen.app.runs.a.as_ref().expect("a run");
    assert_eq!(a.subject.name(), "step-250");
}

#[test]
fn a_step_that_is_selected_stays_so_when_others_come() {
    let training = Training::new(&[10, 20, 30]);
    let history = History::new("runs".to_owned(), Origin::Checkpoints);
    let mut screen = of_view(HistoryView::new(history, files()), (80, 24), Depth::None);
    let all = [(10, 0.9), (30, 0.9)].map(|(step, entropy)| training.read(step, entropy));
    let mut updates = vec![training.found(&[10, 30])];
    updates.extend(all);
    screen.send(Msg::History(updates));
    screen.typed("g");
    screen.send(Msg::History(vec![
        training.found(&[10, 20, 30]),
        training.read(20, 0.8),
    ]));
    says(&mut screen, "step 10 · done");
    screen.key(KeyCode::Right);
    says(&mut screen, "step 20 · done");
}

#[test]
fn enter_opens_a_step_in_all_panels_and_space_compares_with_another() {
    let steps = [100, 200, 300];
    let training = Training::new(&steps);
    let history = History::new("runs".to_owned(), Origin::Checkpoints);
    let mut screen = of_view(
        HistoryView::new(history, files()),
        (120, 40),
        Depth::Truecolor,
    );
    let mut updates = vec![training.found(&steps)];
    updates.extend([(100, 0.9), (200, 0.8), (300, 0.01)].map(|(s, e)| training.read(s, e)));
    updates.push(Update::CaughtUp);
    screen.send(Msg::History(updates));
    let name = |screen: &Screen| {
        let [a, b] = screen.app.runs.both().expect("two runs");
        [a.subject.name(), b.subject.name()]
    };
    screen.typed("g");
    screen.key(KeyCode::Enter);
    let a = screen.app.runs.a.as_ref().expect("a run");
    assert_eq!(a.subject.name(), "step-100");
    assert!(a.judgement.is_some());
    screen.key(KeyCode::Char(' '));
    says(&mut screen, "this step is A");
    screen.key(KeyCode::Right);
    screen.key(KeyCode::Char(' '));
    assert_eq!(name(&screen), ["step-100", "step-200"]);
    shows("history_compared", (120, 40), &mut screen);
    screen.go(Panel::Compare);
    assert!(screen.app.scene().comparison().is_some());
    screen.go(Panel::Overview);
    says(&mut screen, "AGAINST");
    // Another step as A: the marked one still stands beside it.
    screen.go(Panel::History);
    screen.typed("G");
    screen.key(KeyCode::Enter);
    assert_eq!(name(&screen), ["step-300", "step-200"]);
    screen.key(KeyCode::Left);
    screen.key(KeyCode::Char(' '));
    assert!(screen.app.runs.b.is_none());
    assert_eq!(screen.app.marked_step(), None);
}

#[test]
fn a_step_that_cannot_be_opened_leaves_what_is_open() {
    let training = Training::new(&[100, 200]);
    std::fs::write(training.at(200).join("model.safetensors"), "no tensors").expect("writes");
    let history = History::new("runs".to_owned(), Origin::Checkpoints);
    let mut screen = of_view(
        HistoryView::new(history, files()),
        (120, 40),
        Depth::Truecolor,
    );
    screen.send(Msg::History(vec![
        training.found(&[100, 200]),
        training.read(100, 0.9),
    ]));
    screen.typed("g");
    screen.key(KeyCode::Enter);
    screen.typed("G");
    screen.key(KeyCode::Enter);
    says(&mut screen, "model.safetensors");
    assert!(!screen.app.is_over);
    let a = screen.app.runs.a.as_ref().expect("a run");
    assert_eq!(a.subject.name(), "step-100");
    let view = screen.app.training.as_ref().expect("a training");
    assert_eq!(view.opened(), Some(0));
}

#[test]
fn bundled_steps_open_and_others_say_which_do() {
    let mut screen = demo((120, 40), Depth::Truecolor);
    let name = |screen: &Screen| screen.app.runs.a.as_ref().map(|a| a.subject.name());
    assert_eq!(name(&screen).as_deref(), Some("history-step-400"));
    screen.typed("g");
    screen.key(KeyCode::Enter);
    says(
        &mut screen,
        "step 0 has no checkpoint (there are 150, 250, 400)",
    );
    let view = screen.app.training.as_ref().expect("a training");
    let records = view.history.records().iter();
    let at = records
        .into_iter()
        .position(|record| record.step == Some(250));
    for _ in 0..at.expect("step 250") {
        screen.key(KeyCode::Right);
    }
    screen.key(KeyCode::Enter);
    assert_eq!(name(&screen).as_deref(), Some("history-step-250"));
}

#[test]
fn a_reader_that_fails_says_why() {
    let history = History::new("runs".to_owned(), Origin::Log);
    let mut screen = of_view(HistoryView::new(history, files()), (80, 24), Depth::None);
    let problem = Error::file(Path::new("run.jsonl"), "cannot be read");
    screen.send(Msg::HistoryEnded(Err(problem)));
    says(&mut screen, "run.jsonl: cannot be read");
    let view = screen.app.training.as_ref().expect("a training");
    assert!(matches!(view.reading, Read::Over(Some(_))));
}

#[test]
fn what_begins_is_walked_through_with_its_reasons() {
    let mut screen = log("jump", (120, 40), Depth::Truecolor);
    let at = |screen: &Screen| {
        let view = screen.app.training.as_ref().expect("a training");
        (view.at, view.onset)
    };
    let n = {
        let view = screen.app.training.as_ref().expect("a training");
        view.onsets().len()
    };
    assert!(n > 12, "more than there is room for: {n}");
    says(&mut screen, "collapse of all 12 heads between step 260");
    // What begins with the loss alone leaves the statistic as it is.
    let (nth, first) = {
        let view = screen.app.training.as_ref().expect("a training");
        let onsets = view.onsets();
        let mut places = onsets.iter().map(|onset| onset.at()).enumerate();
        let found = places.find(|(_, at)| at.2 != "loss");
        found.expect("a statistic")
    };
    for _ in 0..=nth {
        screen.typed("f");
    }
    assert_eq!(at(&screen), (first.0, Some(nth)));
    assert_eq!(STATISTICS[screen.app.statistic_idx].id, first.2);
    says(&mut screen, "→ the scale of the scores was changed");
    for _ in nth..n {
        screen.typed("f");
    }
    assert_eq!(at(&screen).1, Some(n - 1), "the last one is the end");
    let last = {
        let view = screen.app.training.as_ref().expect("a training");
        view.onsets()[n - 1].told(&view.history)
    };
    let words: String = last.chars().take(40).collect();
    says(&mut screen, &words);
    screen.typed("F");
    assert_eq!(at(&screen).1, Some(n - 2));
    screen.key(KeyCode::Left);
    assert_eq!(at(&screen).1, None, "another step is none of them");
    // The palette goes to a step by its number.
    screen.typed(":step 255");
    screen.key(KeyCode::Enter);
    says(&mut screen, "step 255 · done");
    screen.typed("r");
    says(&mut screen, "a log is read by itself as it grows");
}
