//! A model that writes can be stopped, and asked again.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use attnscope_prompt::{Request, Target};
use attnscope_worker::{Event, PromptOrigin, Terms, Worker};

#[test]
fn what_a_decoder_writes_can_be_given_up_and_the_next_prompt_runs() {
    let (sender, events) = mpsc::channel();
    let asks = |n_written| Request {
        target: Target::Generate(n_written),
        ..Request::ids(vec![3, 4, 5, 6, 7])
    };
    // More than anyone waits for: this decoder has no limit, and never writes its end token.
    let first = move |_: &_, _| Ok((asks(1_000_000), PromptOrigin::Asked));
    let sink = Arc::new(move |event| drop(sender.send(event)));
    let path = testing::root().join("fixtures/oracle/t5_v11/model");
    let worker = Worker::start(
        Some(path),
        Box::new(first),
        Terms {
            is_forced: true,
            ..Terms::default()
        },
        sink,
    );
    let next = || {
        let event = events.recv_timeout(Duration::from_secs(60));
        event.expect("an event within a minute")
    };
    assert!(matches!(next(), Event::Opened { .. }));
    // How far it is is told after every token, the start token counted.
    match next() {
        Event::Writing { n_written, n_most } => assert_eq!((n_written, n_most), (2, 1_000_001)),
        other => panic!("{other:?}"),
    }
    worker.cancel();
    let other_than_writing = || {
        loop {
            match next() {
                Event::Writing { .. } => {}
                other => break other,
            }
        }
    };
    match other_than_writing() {
        Event::Refused(reason) => assert_eq!(reason, "stopped"),
        other => panic!("{other:?}"),
    }
    worker.run(asks(2));
    match other_than_writing() {
        Event::Started { prompt, .. } => assert_eq!(prompt.tokens.len(), 3),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_written_behind_a_text_is_stopped_and_what_was_written_is_told() {
    let (sender, events) = mpsc::channel();
    let (goes_on, waits) = mpsc::channel::<()>();
    let waits = Mutex::new(waits);
    // The worker waits after each token until it is told to go on.
    let sink = Arc::new(move |event| {
        let is_token = matches!(event, Event::Wrote(..));
        drop(sender.send(event));
        if is_token {
            let _ = waits.lock().expect("a lock").recv();
        }
    });
    let first = |_: &_, _| Ok((Request::ids(vec![3, 4, 5, 6, 7]), PromptOrigin::Asked));
    let path = testing::root().join("fixtures/induction");
    let worker = Worker::start(
        Some(path),
        Box::new(first),
        Terms {
            is_forced: true,
            ..Terms::default()
        },
        sink,
    );
    let until = |is_it: &dyn Fn(&Event) -> bool| loop {
        let event = events.recv_timeout(Duration::from_secs(60));
        let event = event.expect("an event within a minute");
        if is_it(&event) {
            break event;
        }
    };
    until(&|event| matches!(event, Event::Judged { .. }));
    worker.write();
    match until(&|event| matches!(event, Event::Wrote(..))) {
        Event::Wrote(0, token) => {
            assert_eq!(token.likeliest.len(), 10);
            assert!((token.likeliest[0].1 - token.probability).abs() < 1e-12);
            // Two layers of four heads, each over the five tokens.
            assert_eq!(token.rows.len(), 8);
            let sums = token.rows.values().map(|row| row.iter().sum::<f32>());
            assert!(sums.into_iter().all(|sum| (sum - 1.0).abs() < 1e-5));
            assert!(token.rows.values().all(|row| row.len() == 5));
        }
        other => panic!("{other:?}"),
    }
    goes_on.send(()).expect("the worker waits");
    until(&|event| matches!(event, Event::Wrote(..)));
    worker.cancel();
    goes_on.send(()).expect("the worker waits");
    match until(&|event| matches!(event, Event::EndedWriting { .. })) {
        Event::EndedWriting {
            tokens,
            n_written,
            why,
            ..
        } => {
            assert_eq!((tokens.len(), n_written), (7, 2));
            assert_eq!(why.as_deref(), Some("stopped"));
        }
        other => panic!("{other:?}"),
    }
}
