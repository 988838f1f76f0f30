//! Every key is answered, whatever else comes from a terminal.
//!
//! Tests start in the order of their names. This one waits longest of all, and is not to be waited for at the end.

use std::io::Write;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testing::pty::{Terminal, bold};

use crate::terminal::{STALLED, Started, start};

/// How many events the short run sends; `ATTNSCOPE_PTY_EVENTS` asks for more.
const N_EVENTS: usize = 2500;
/// Something that a person or a terminal does between two keys that are waited for; gives it in words.
fn disturb(terminal: &Terminal, random: &mut fastrand::Rng) -> String {
    match random.u8(0..100) {
        0..30 => {
            let size = (random.u16(80..140), random.u16(24..45));
            terminal.resize(size);
            format!("{size:?}")
        }
        // Too small for panels, for a moment.
        30..33 => {
            let size = (random.u16(0..80), random.u16(0..24));
            terminal.resize(size);
            format!("{size:?}")
        }
        33..60 => {
            let keys = [
                "\x1b[A",
                "\x1b[B",
                "\x1bOC",
                "\x1b[1;5D",
                "j",
                "]",
                "\x1b[6~",
                "ä",
                "\x1b[Z",
            ];
            sent(terminal, keys[random.usize(0..keys.len())])
        }
        60..85 => {
            let (column, row) = (random.u16(1..90), random.u16(4..24));
            let button = [35, 35, 35, 64, 65][random.usize(0..5)];
            sent(terminal, &format!("\x1b[<{button};{column};{row}M"))
        }
        85..90 => {
            let text = "pasted 1 2 3 ".repeat(random.usize(0..800));
            terminal.send(format!("\x1b[200~{text}\x1b[201~").as_bytes());
            format!("paste of {}", text.len())
        }
        90..96 => sent(terminal, if random.bool() { "\x1b[I" } else { "\x1b[O" }),
        96..99 => {
            terminal.signal(Signal::CONT);
            "continue".to_owned()
        }
        _ => {
            // Half a sequence, as when a connection breaks: what comes after a while is no part of it.
            let halves = ["\x1b", "\x1b[", "\x1b[1;", "\x1b[<35;10", "\x1bO"];
            let half = halves[random.usize(0..halves.len())];
            sent(terminal, half);
            // The program gives up after 0.1 s; a busy machine may wake it later.
            std::thread::sleep(Duration::from_millis(400));
            format!("half {half:?}")
        }
    }
}

fn sent(terminal: &Terminal, text: &str) -> String {
    terminal.send(text.as_bytes());
    format!("{text:?}")
}

/// Figures of a long run, as it goes on.
fn tell(line: &str) {
    // Nobody may be reading.
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[test]
fn every_key_is_answered_whatever_comes_between() {
    let n_events = std::env::var("ATTNSCOPE_PTY_EVENTS")
        .map_or(N_EVENTS, |n| n.parse().expect("a number of events"));
    let mut random = fastrand::Rng::with_seed(14);
    let Started { mut terminal, .. } = start();
    let (mut n_sent, mut n_asked, mut stalled) = (0, 0, Vec::new());
    let (mut worst, mut key) = (Duration::ZERO, '1');
    let begun = Instant::now();
    while n_sent < n_events {
        let n_between = random.usize(0..6);
        let between: Vec<String> = (0..n_between)
            .map(|_| disturb(&terminal, &mut random))
            .collect();
        key = loop {
            let next = char::from_digit(random.u32(1..10), 10).expect("a digit");
            if next != key {
                break next;
            }
        };
        // The size changes at the very moment at which the key comes; a panel is only to be seen where there is room.
        let (size, is_before) = ((random.u16(80..140), random.u16(24..45)), random.bool());
        let tab = format!(" {key} ");
        if is_before {
            terminal.resize(size);
        }
        terminal.send(key.to_string().as_bytes());
        if !is_before {
            terminal.resize(size);
        }
        n_sent += n_between + 2;
        if n_asked % 2000 == 1999 {
            tell(&format!(
                "{n_sent} events, {} stalled, {worst:?}",
                stalled.len()
            ));
        }
        n_asked += 1;
        match terminal.until(STALLED, |screen| bold(screen, 1).contains(&tab)) {
            Some(took) => worst = worst.max(took),
            None => {
                stalled.push(format!(
                    "key {key} after {n_sent} events, {between:?}, then {size:?} {}:\n{}",
                    if is_before { "before it" } else { "after it" },
                    terminal.text()
                ));
                // Whatever it waits for: the next key is to be a key again.
                terminal.send(b"\x1b[C");
            }
        }
    }
    let took = begun.elapsed();
    tell(&format!(
        "{n_sent} events, {n_asked} keys waited for, {} stalled, the slowest answer {worst:?}, {took:?} in all",
        stalled.len()
    ));
    assert!(
        stalled.is_empty(),
        "{} stalled; {}",
        stalled.len(),
        stalled[0]
    );
    terminal.send(b"q");
    assert_eq!(terminal.ends().code(), Some(0));
    assert_eq!(terminal.not_restored(), [""; 0]);
}
