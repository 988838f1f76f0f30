//! A decoder that writes its own target can be stopped, and asked again.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use attnscope::worker::{Event, PromptOrigin, Worker};
use attnscope_engine::ops::Device;
use attnscope_engine::prompt::{Request, Target};

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
    let worker = Worker::start(Some(path), Box::new(first), Device::Cpu, true, sink);
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
