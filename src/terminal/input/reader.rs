//! Waits for terminal bytes, and for the timeout of an incomplete sequence.

use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::Input;
use super::hold::InputHold;
use super::parser::Parser;

/// Most bytes that a terminal delivers at once.
const CHUNK: usize = 4096;

/// Reads until the terminal is gone, or `tell` returns false. Nothing is read while `hold` is held.
pub fn read_from(terminal: impl AsFd, hold: &InputHold, mut tell: impl FnMut(Input) -> bool) {
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
        let mut waited_for = [
            PollFd::new(&terminal, PollFlags::IN),
            PollFd::new(hold.woken(), PollFlags::IN),
        ];
        match poll(&mut waited_for, timeout.as_ref()) {
            Ok(0) => parser.give_up(&mut events),
            Ok(_) if !waited_for[1].revents().is_empty() => {
                hold.wait();
                // What came before belongs to nothing that comes now.
                parser = Parser::default();
            }
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
    fn nothing_is_read_while_input_is_held_and_all_of_it_afterwards() {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        let (sender, events) = mpsc::channel();
        let hold = InputHold::new().expect("a pipe");
        let reader = thread::spawn({
            let hold = hold.clone();
            move || read_from(theirs, &hold, |input| sender.send(input).is_ok())
        });
        let mut typed = |letter: char| {
            let mut bytes = [0; 4];
            ours.write_all(letter.encode_utf8(&mut bytes).as_bytes())
                .expect("writes");
        };
        let key = |letter| {
            let key = KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE);
            Ok(Input::Event(Event::Key(key)))
        };
        let long = Duration::from_secs(5);
        for _ in 0..2 {
            typed('a');
            assert_eq!(events.recv_timeout(long), key('a'));
            let held = hold.hold().expect("holds");
            typed('b');
            let nothing = events.recv_timeout(Duration::from_millis(100));
            assert!(nothing.is_err(), "{nothing:?}");
            drop(held);
            assert_eq!(events.recv_timeout(long), key('b'));
        }
        drop(ours);
        reader.join().expect("ends when the terminal is gone");
    }

    #[test]
    fn an_incomplete_sequence_is_given_up_and_does_not_swallow_the_next_key() {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        let (sender, events) = mpsc::channel();
        let hold = InputHold::new().expect("a pipe");
        let reader = thread::spawn(move || {
            read_from(theirs, &hold, |input| match input {
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
