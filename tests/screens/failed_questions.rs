//! Questions about a run that cannot be answered: each says what failed, and stops nothing else.

use attnscope_checkpoint::Opening;
use attnscope_compute::ops::Device;
use attnscope_prompt::Request;
use attnscope_run::Step;
use attnscope_screen::{Depth, Msg, Panel};
use attnscope_worker::{Event, QuestionKind};
use testing::screen::Screen;

fn open() -> Screen {
    let request = Request::text("the old king gave a red apple to his horse .");
    Screen::open(Opening::default(), request, (120, 40), Depth::Truecolor)
}

fn failed(screen: &mut Screen, question: QuestionKind) {
    let run = screen.app.scene().run().expect("a run").id;
    let reason = "the weights are gone".to_owned();
    screen.app.update(Msg::Worker(Event::QuestionFailed {
        run,
        question,
        reason,
    }));
}

#[test]
fn a_head_that_could_not_be_computed_is_not_said_to_be_computing() {
    let mut screen = open();
    screen.go(Panel::Head);
    let head = screen.app.scene().wanted_head();
    let run = screen.app.runs.a.as_mut().expect("a run");
    (run.detail, run.awaited) = (None, Some(head));
    assert!(
        screen.text().contains("computing layer 0 head 0"),
        "{}",
        screen.text()
    );
    failed(&mut screen, QuestionKind::Head(head));
    let text = screen.text();
    assert!(
        text.contains("layer 0 head 0 could not be computed: the weights are gone"),
        "{text}"
    );
    // Another head is another question.
    screen.app.selection.head_idx = 1;
    let text = screen.text();
    assert!(!text.contains("could not be computed"), "{text}");
}

#[test]
fn a_sweep_that_fails_leaves_probes_running() {
    let mut screen = open();
    let run = screen.app.scene().run().expect("a run").id;
    let step = Step {
        what: "adding padding".to_owned(),
        n_done: 1,
        n: 4,
    };
    screen.app.update(Msg::Worker(Event::Probing { run, step }));
    let is_probing = |screen: &Screen| {
        screen
            .app
            .scene()
            .run()
            .is_some_and(|run| run.probing.is_some())
    };
    for question in [
        QuestionKind::Sweep,
        QuestionKind::LayerSweep,
        QuestionKind::Part,
    ] {
        failed(&mut screen, question);
        assert!(is_probing(&screen), "{question:?}");
    }
    failed(&mut screen, QuestionKind::Probes);
    assert!(!is_probing(&screen));
}

#[test]
fn the_header_names_what_computes() {
    let mut screen = open();
    assert!(
        screen
            .text()
            .lines()
            .next()
            .is_some_and(|line| line.contains(" · cpu "))
    );
    screen.app.device = Device::Cuda(1);
    assert!(
        screen
            .text()
            .lines()
            .next()
            .is_some_and(|line| line.contains(" · cuda:1 "))
    );
}
