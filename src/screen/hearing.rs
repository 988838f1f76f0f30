//! Turns the terminal's input and the system's signals into messages.

use std::io;
use std::sync::mpsc::Sender;
use std::thread;

#[cfg(unix)]
use attnscope_system::signals::Asked;
#[cfg(unix)]
use attnscope_terminal::input::InputHold;
use attnscope_terminal::input::{Input, read_input};
use crossterm::event::Event as TermEvent;
#[cfg(unix)]
use crossterm::terminal::disable_raw_mode;

use super::state::msg::Msg;
use super::terminal::bounded;
#[cfg(unix)]
use super::terminal::size;

/// The reading of input, which can be stopped for another program.
#[derive(Debug)]
pub struct Ears {
    #[cfg(unix)]
    pub hold: InputHold,
}

/// Turns input into messages, on a thread that ends with the program.
///
/// # Errors
/// When the system gives no pipe.
pub fn listen(sender: Sender<Msg>) -> io::Result<Ears> {
    let ears = Ears {
        #[cfg(unix)]
        hold: InputHold::new()?,
    };
    #[cfg(unix)]
    let hold = ears.hold.clone();
    thread::spawn(move || {
        let tell = |input| {
            let event = match input {
                Input::Event(event) => event,
                Input::Answer(answer) => return sender.send(Msg::Answer(answer)).is_ok(),
            };
            let msg = match event {
                TermEvent::Key(key) => Msg::Key(key),
                TermEvent::Mouse(mouse) => Msg::Mouse(mouse),
                TermEvent::Paste(text) => Msg::Paste(text),
                TermEvent::Resize(width, height) => resized((width, height)),
                TermEvent::FocusGained | TermEvent::FocusLost => return true,
            };
            sender.send(msg).is_ok()
        };
        #[cfg(unix)]
        read_input(&hold, tell);
        #[cfg(not(unix))]
        read_input(tell);
        // The terminal is gone.
        let _ = sender.send(Msg::Terminate);
    });
    Ok(ears)
}

fn resized(size: (u16, u16)) -> Msg {
    let (width, height) = bounded(size);
    Msg::Resize(width, height)
}

/// Turns signals into messages while the returned claim is held.
#[cfg(unix)]
pub fn hear_signals(sender: Sender<Msg>) -> attnscope_system::signals::SignalClaim {
    let tell = move |asked| {
        // The screen may already have ended.
        let _ = sender.send(match asked {
            Asked::End => Msg::Terminate,
            Asked::Stop => Msg::Stop,
            Asked::Continue => Msg::Continued,
            Asked::Resize => resized(size()),
        });
    };
    attnscope_system::signals::claim(tell, || drop(disable_raw_mode()))
}
