//! Waits for terminal bytes, and for the timeout of an incomplete sequence.

use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::Input;
use super::parser::Parser;

/// Most bytes that a terminal delivers at once.
const CHUNK: usize = 4096;

/// Reads until the terminal is gone, or `tell` returns false.
pub fn read_from(terminal: impl AsFd, mut tell: impl FnMut(Input) -> bool) {
    let mut parser = Parser::default();
    let mut bytes = [0; CHUNK];
    let mut events = Vec::new();
    // Time of the last bytes.
    let mut last = Instant::now();
    loop {
        let left = parser
            .patience()
            .map(|patience| patience.saturating_sub(last.elapsed()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut waited_for = [PollFd::new(&terminal, PollFlags::IN)];
        match poll(&mut waited_for, timeout.as_ref()) {
            Ok(0) => parser.give_up(&mut events),
            // Also after a hangup, which the read then reports.
            Ok(_) => match rustix::io::read(&terminal, &mut bytes) {
                Ok(0) => return,
                Ok(n) => {
                    last = Instant::now();
                    parser.feed(&bytes[..n], &mut events);
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(e) => {
                    log::info!("the terminal is gone: {e}");
                    return;
                }
            },
            Err(Errno::INTR) => {}
            Err(e) => {
                log::error!("the terminal cannot be waited for: {e}");
                return;
            }
        }
        let answers = parser.take_answers().into_iter().map(Input::Answer);
        for input in answers.chain(events.drain(..).map(Input::Event)) {
            if !tell(input) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};

    use super::*;

    #[test]
    fn an_incomplete_sequence_is_given_up_and_does_not_swallow_the_next_key() {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        let (sender, events) = mpsc::channel();
        let reader = thread::spawn(move || {
            read_from(theirs, |input| match input {
                Input::Event(event) => sender.send(event).is_ok(),
                Input::Answer(answer) => panic!("nobody asked: {answer:?}"),
            })
        });
        let key = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        let mut next = |sent: &[u8]| {
            ours.write_all(sent).expect("writes");
            let begun = Instant::now();
            let event = events.recv_timeout(Duration::from_secs(5));
            (event.expect("an event"), begun.elapsed())
        };
        let (event, took) = next(b"\x1b");
        assert_eq!(event, key(KeyCode::Esc, KeyModifiers::NONE));
        // The timeout is shorter; a busy machine may wake us later.
        assert!(took < Duration::from_millis(500), "{took:?}");
        // An incomplete sequence gives no event, and a key after a while is parsed by itself.
        for half in [
            &b"\x1b[1;"[..],
            b"\x1b[<3;4",
            b"\x1b[M!",
            b"\xe2\x82",
            b"\x1b[200~",
        ] {
            ours.write_all(half).expect("writes");
            thread::sleep(Duration::from_millis(if half.ends_with(b"~") {
                1500
            } else {
                300
            }));
            ours.write_all(b"q").expect("writes");
            let event = loop {
                match events
                    .recv_timeout(Duration::from_secs(5))
                    .expect("an event")
                {
                    Event::Paste(text) => assert_eq!(text, ""),
                    event => break event,
                }
            };
            assert_eq!(
                event,
                key(KeyCode::Char('q'), KeyModifiers::NONE),
                "{half:?}"
            );
        }
        drop(ours);
        reader.join().expect("ends when the terminal is gone");
    }
}
