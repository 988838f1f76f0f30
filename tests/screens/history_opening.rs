//! What a training opens by itself, what it counts, and what it says where there is nothing to show.

use attnscope_checks::Severity;
use attnscope_checks::stats::STATISTICS;
use attnscope_history::{History, Origin, State, Update, batch_of};
use attnscope_screen::{Depth, HistoryView, Msg};
use crossterm::event::KeyCode;
use testing::judged::fixture;
use testing::screen::Screen;

use crate::history_parts::{Training, demo, files, log, of_view, says};

#[test]
fn a_statistic_that_no_step_records_says_so() {
    let mut screen = log("jump", (120, 40), Depth::Truecolor);
    screen.typed("3");
    screen.key(KeyCode::End);
    screen.typed("H");
    says(&mut screen, "no step records it");
    // The curves are those that were recorded, and no value of the head is made up.
    let text = screen.text();
    assert!(
        !text.contains("NaN") && text.contains("relative entropy"),
        "{text}"
    );
    for key in [KeyCode::Up, KeyCode::Down, KeyCode::Left, KeyCode::Enter] {
        screen.key(key);
        screen.frame();
    }
    screen.typed("n");
    let id = STATISTICS[screen.app.statistic_idx].id;
    assert_eq!(id, "entropy_relative");
}

#[test]
fn the_header_and_the_box_count_what_begins_alike() {
    for mut screen in [
        demo((120, 40), Depth::Truecolor),
        log("jump", (120, 40), Depth::Truecolor),
    ] {
        let text = screen.text();
        let after = |line: Option<&str>, before: &str| -> String {
            let line = line.unwrap_or_else(|| panic!("no {before} in\n{text}"));
            let rest = line.split(before).nth(1).unwrap_or_default();
            let words = rest.split_whitespace();
            words.take(2).collect::<Vec<_>>().join(" ")
        };
        let above = after(text.lines().next(), "✖");
        let line = text.lines().find(|line| line.contains("findings, by step"));
        assert_eq!(above, after(line, "findings, by step ·"));
        let view = screen.app.training.as_ref().expect("a training");
        let events = view.events().into_iter();
        let n_errors = events.filter(|event| event.severity() == Severity::Error);
        let n = n_errors.count();
        assert_eq!(above, format!("{n} error{}", if n == 1 { "" } else { "s" }));
    }
}

#[test]
fn the_newest_checkpoint_that_can_be_read_opens_by_itself_once() {
    let steps = [100, 200, 300];
    let training = Training::new(&steps);
    let history = History::new("runs".to_owned(), Origin::Checkpoints);
    let mut screen = of_view(HistoryView::new(history, files()), (120, 40), Depth::None);
    let name = |screen: &Screen| screen.app.runs.a.as_ref().map(|a| a.subject.name());
    screen.send(Msg::History(vec![training.found(&steps)]));
    assert_eq!(name(&screen), None);
    // An older one is no substitute while the newest is still to come.
    screen.send(Msg::History(vec![training.read(100, 0.9)]));
    assert_eq!(name(&screen), None);
    let failed = State::Failed("wte.weight: 3 bytes are missing".to_owned());
    screen.typed("g");
    screen.send(Msg::History(vec![
        Update::State(training.at(300), failed),
        training.read(200, 0.8),
    ]));
    assert_eq!(name(&screen).as_deref(), Some("step-200"));
    says(&mut screen, "step 100 · done");
    screen.typed("1");
    says(&mut screen, "step-200");
    // What comes later does not take the place of what a person looks at.
    screen.send(Msg::History(vec![training.read(300, 0.7)]));
    assert_eq!(name(&screen).as_deref(), Some("step-200"));
}

#[test]
fn findings_follow_a_log_that_begins_anew() {
    let mut screen = log("jump", (120, 40), Depth::Truecolor);
    let text = std::fs::read_to_string(fixture("histories").join("jump.jsonl")).expect("a log");
    let first: Vec<&str> = text.lines().take(4).collect();
    let mut batch = batch_of("jump", &first.join("\n")).expect("a log");
    batch.restarted = Some("was replaced");
    screen.send(Msg::History(vec![Update::Log(batch)]));
    screen.frame();
    screen.typed("f");
    screen.frame();
    says(&mut screen, "3 records");
}

#[test]
fn a_mark_that_is_set_first_waits_for_a() {
    let steps = [100, 200];
    let training = Training::new(&steps);
    let history = History::new("runs".to_owned(), Origin::Checkpoints);
    let mut screen = of_view(
        HistoryView::new(history, files()),
        (120, 40),
        Depth::Truecolor,
    );
    screen.send(Msg::History(vec![training.found(&steps)]));
    screen.key(KeyCode::Char(' '));
    let read = [(100, 0.9), (200, 0.8)].map(|(step, entropy)| training.read(step, entropy));
    screen.send(Msg::History(read.into_iter().collect()));
    assert_eq!(screen.app.marked_step(), Some(1));
    assert!(screen.app.runs.a.is_none());
    screen.typed("g");
    screen.key(KeyCode::Enter);
    let [a, b] = screen.app.runs.both().expect("two runs");
    assert_eq!(
        [a.subject.name(), b.subject.name()],
        ["step-100", "step-200"]
    );
}
