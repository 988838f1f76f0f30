//! A live subject on screen: a run is shown before its checks, and a newer run stops them.

use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use attnscope_live::LiveTarget;
use attnscope_prompt::Request;
use attnscope_run::Declared;
use attnscope_screen::{App, Depth, Msg, Theme, draw};
use attnscope_worker::{Against, Event, LiveOpening, RunId, Terms, Worker};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use testing::live_stub::Stub;

/// The stub on screen, with a worker that stops after it told that a run is finished, until it is let go.
struct Live {
    app: App,
    worker: Worker,
    events: mpsc::Receiver<Event>,
    goes_on: mpsc::Sender<()>,
    _stub: Stub,
}

impl Live {
    /// `None` without Python.
    fn open(text: &str) -> Option<Self> {
        let stub = Stub::start("stub.py")?;
        let (sender, events) = mpsc::channel();
        let (goes_on, waits) = mpsc::channel::<()>();
        let waits = Mutex::new(waits);
        let sink = Arc::new(move |event: Event| {
            let is_finished = matches!(event, Event::Finished { .. });
            drop(sender.send(event));
            if is_finished {
                let _ = waits.lock().expect("a lock").recv();
            }
        });
        let opening = LiveOpening {
            target: LiveTarget::parse(Path::new(&stub.target)).expect("a live target"),
            python: None,
            declared: Declared::default(),
            first: Some(Request::text(text)),
        };
        Some(Self {
            app: App::new(Theme::new(Depth::Truecolor), (120, 40), "a stub".to_owned()),
            worker: Worker::start_live(opening, Terms::default(), sink),
            events,
            goes_on,
            _stub: stub,
        })
    }

    /// Takes in what the worker tells, up to the first event that `is_it`.
    fn until(&mut self, is_it: impl Fn(&Event) -> bool) -> Event {
        loop {
            let event = self.events.recv_timeout(Duration::from_secs(60));
            let event = event.expect("the worker tells");
            assert!(!matches!(event, Event::OpenFailed(_)), "{event:?}");
            for effect in self.app.update(Msg::Worker(event.clone())) {
                effect.ask(&self.worker);
            }
            if is_it(&event) {
                return event;
            }
        }
    }

    fn finished(&mut self) -> RunId {
        match self.until(|event| matches!(event, Event::Finished { .. })) {
            Event::Finished { run, .. } => run,
            other => panic!("{other:?}"),
        }
    }

    /// The next run whose checks ended, and whether they ran.
    fn checked(&mut self) -> (RunId, bool) {
        let is_end = |event: &Event| matches!(event, Event::Judged { .. } | Event::Unjudged { .. });
        match self.until(is_end) {
            Event::Judged { run, .. } => (run, true),
            Event::Unjudged { run, reason } => {
                assert_eq!(reason, "stopped");
                (run, false)
            }
            other => panic!("{other:?}"),
        }
    }

    fn go_on(&self) {
        self.goes_on.send(()).expect("the worker waits");
    }

    fn text(&self) -> String {
        let mut terminal = Terminal::new(TestBackend::new(120, 40)).expect("a test backend");
        let drawn = terminal.draw(|frame| draw(frame, &self.app));
        let cells = &drawn.expect("draws").buffer.content;
        cells.iter().map(|cell| cell.symbol()).collect()
    }
}

#[test]
fn a_run_is_shown_before_its_findings_and_not_as_passed() {
    let Some(mut live) = Live::open("a bee sees") else {
        return;
    };
    let run = live.finished();
    let text = live.text();
    assert!(
        live.app.scene().run().is_some_and(|run| run.is_checking()),
        "{text}"
    );
    assert!(text.contains("○ checks running"), "{text}");
    for verdict in ["no findings", "nothing wrong", "1 warning"] {
        assert!(!text.contains(verdict), "{text}");
    }
    // The layer and its statistics are there.
    assert_eq!(
        live.app.scene().run().map(|run| run.layers.len()),
        Some(1),
        "{text}"
    );
    live.go_on();
    assert_eq!(live.checked(), (run, true));
    let text = live.text();
    assert!(!text.contains("checks running"), "{text}");
    assert!(text.contains("1 warning (entropy-uniform)"), "{text}");
}

#[test]
fn an_edit_stops_the_checks_of_the_run_before() {
    let Some(mut live) = Live::open("a bee sees") else {
        return;
    };
    let first = live.finished();
    live.worker.run(Request::text("a bee flies"));
    live.go_on();
    assert_eq!(live.checked(), (first, false));
    let second = live.finished();
    assert!(second > first);
    live.go_on();
    assert_eq!(live.checked(), (second, true));
}

#[test]
fn a_run_beside_it_delays_the_checks_of_a_run() {
    let Some(mut live) = Live::open("a bee sees") else {
        return;
    };
    let first = live.finished();
    let beside = Against::Prompt(Request::text("a bee hums"));
    live.worker.against(beside);
    live.go_on();
    assert_eq!(live.checked(), (first, false));
    let text = live.text();
    assert!(text.contains("○ not checked"), "{text}");
    let second = live.finished();
    live.go_on();
    assert_eq!(live.checked(), (second, true));
    assert_eq!(live.checked(), (first, true));
}
