//! The program on a terminal: every key is answered, and the terminal is given back however it ends.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;
use testing::pty::{Terminal, bold, is_ignored};

/// How many events the short run sends; `ATTNSCOPE_PTY_EVENTS` asks for more.
const N_EVENTS: usize = 2500;
/// A key without an answer for so long has stalled: a frame takes some milliseconds.
const STALLED: Duration = Duration::from_secs(2);

struct Started {
    terminal: Terminal,
    directory: TempDir,
}

fn start_with(variables: &[(&str, &str)], size: (u16, u16)) -> Started {
    let directory = tempfile::tempdir().expect("a directory");
    let program = testing::program();
    let arguments = [program.to_str().expect("a path")];
    Started {
        terminal: Terminal::start(&arguments, variables, directory.path(), size),
        directory,
    }
}

fn start() -> Started {
    let started = start_with(&[], (100, 30));
    started.terminal.shows("3 notes");
    started
}

fn opens(terminal: &Terminal, key: char, within: Duration) -> Option<Duration> {
    terminal.send(key.to_string().as_bytes());
    let tab = format!(" {key} ");
    terminal.until(within, |screen| bold(screen, 1).contains(&tab))
}

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

#[test]
fn a_large_paste_arrives_whole() {
    let Started { mut terminal, .. } = start();
    terminal.send(b"e");
    terminal.shows("Enter");
    let text: String = (0..4000).map(|n| format!("word {n}\n")).collect();
    terminal.send(format!("\x1b[200~{text}the very end\x1b[201~").as_bytes());
    terminal.shows("the very end");
    terminal.send(b"\x03");
    assert_eq!(terminal.ends().code(), Some(0));
}

#[test]
fn the_terminal_is_given_back_however_the_program_ends() {
    for keys in [&b"q"[..], b"\x03", b"2e\x03"] {
        let Started { mut terminal, .. } = start();
        terminal.send(keys);
        assert_eq!(terminal.ends().code(), Some(0), "{keys:?}");
        assert_eq!(terminal.not_restored(), [""; 0], "{keys:?}");
    }
    let signals = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
    for signal in signals.into_iter().filter(|signal| !is_ignored(*signal)) {
        let Started { mut terminal, .. } = start();
        terminal.signal(signal);
        let status = terminal.ends();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{signal:?}");
        assert_eq!(terminal.not_restored(), [""; 0], "{signal:?}");
    }
}

#[test]
#[cfg_attr(
    not(debug_assertions),
    ignore = "what makes it panic is in debug builds alone"
)]
fn a_panic_of_the_screen_is_told_after_the_terminal_is_given_back() {
    let Started { mut terminal, .. } = start_with(&[("ATTNSCOPE_TEST_PANIC", "1")], (100, 30));
    terminal.shows("3 notes");
    terminal.send(b"\x1b[24~");
    assert_eq!(terminal.ends().code(), Some(101));
    assert_eq!(terminal.not_restored(), [""; 0]);
    assert!(
        terminal.text().contains("asked to panic"),
        "{}",
        terminal.text()
    );
}

#[test]
fn a_stop_gives_the_terminal_to_the_shell_and_fg_takes_it_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = testing::program();
    let script = format!(
        "set -m; {}; echo the shell is back; read line; fg >/dev/null; echo ended with $?",
        program.display()
    );
    let mut terminal = Terminal::start(
        &["/bin/sh", "-c", &script],
        &[],
        directory.path(),
        (100, 30),
    );
    terminal.shows("3 notes");
    terminal.send(b"\x1a");
    terminal.shows("the shell is back");
    assert_eq!(terminal.not_restored(), [""; 0]);
    terminal.send(b"\n");
    terminal.shows("3 notes");
    assert!(
        opens(&terminal, '4', STALLED).is_some(),
        "{}",
        terminal.text()
    );
    terminal.send(b"q");
    terminal.shows("ended with 0");
    terminal.ends();
    assert_eq!(terminal.not_restored(), [""; 0]);
}

#[test]
fn without_a_shell_to_go_back_to_a_stop_is_refused() {
    let Started { mut terminal, .. } = start();
    terminal.send(b"\x1a");
    terminal.shows("there is no shell to go back to");
    terminal.signal(Signal::TSTP);
    assert!(opens(&terminal, '3', STALLED).is_some());
    terminal.send(b"q");
    assert_eq!(terminal.ends().code(), Some(0));
}

#[test]
fn a_terminal_that_goes_away_ends_the_program() {
    let Started { mut terminal, .. } = start();
    let begun = Instant::now();
    terminal.hang_up();
    terminal.ends();
    assert!(begun.elapsed() < Duration::from_secs(4));
}

#[test]
fn a_terminal_that_nobody_reads_does_not_keep_the_program_alive() {
    let Started { mut terminal, .. } = start();
    terminal.hold(true);
    for n in 0..200 {
        terminal.resize((100 + n % 7, 40));
        terminal.send(b"\t");
    }
    std::thread::sleep(Duration::from_millis(200));
    terminal.signal(Signal::TERM);
    let status = terminal.ends();
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
    assert_eq!(terminal.modes_not_restored(), [""; 0]);
}

#[test]
fn terminals_of_any_size_are_drawn_on() {
    for size in [
        (0, 0),
        (1, 1),
        (1, 200),
        (200, 1),
        (79, 23),
        (2000, 2000),
        (65535, 65535),
    ] {
        let Started {
            mut terminal,
            directory,
        } = start_with(&[], size);
        let drew = |screen: &vt100::Screen| screen.alternate_screen();
        assert!(
            terminal.until(Duration::from_secs(20), drew).is_some(),
            "{size:?}"
        );
        terminal.send(b"4\x1b[B\x1b[6~2-+7x");
        terminal.resize((100, 30));
        assert!(
            opens(&terminal, '3', Duration::from_secs(20)).is_some(),
            "{size:?}"
        );
        terminal.send(b"q");
        assert_eq!(terminal.ends().code(), Some(0), "{size:?}");
        drop(directory);
    }
}

#[test]
fn a_directory_of_checkpoints_opens_as_a_history_that_grows_by_itself() {
    let directory = tempfile::tempdir().expect("a directory");
    let step = |step: u64| {
        // Under another name until it is whole, as trainers do.
        let (being_written, whole) = (
            directory.path().join(format!("runs/tmp-{step}")),
            directory.path().join(format!("runs/step-{step}")),
        );
        std::fs::create_dir_all(&being_written).expect("makes");
        for file in ["config.json", "model.safetensors"] {
            let from = testing::checkpoint_copy::original("gpt2").join(file);
            std::fs::copy(from, being_written.join(file)).expect("copies");
        }
        std::fs::rename(being_written, whole).expect("renames");
    };
    step(100);
    step(200);
    let cache = directory.path().join("cache");
    let program = testing::program();
    let arguments = [
        program.to_str().expect("a path"),
        "runs",
        "--tokens",
        "1,2,3,4",
    ];
    let variables = [("XDG_CACHE_HOME", cache.to_str().expect("a path"))];
    let terminal = Terminal::start(&arguments, &variables, directory.path(), (120, 40));
    terminal.shows("2 checkpoints");
    terminal.shows("watching");
    terminal.shows("step 200 · done");
    step(300);
    terminal.shows("step 300 · done");
    terminal.send(b"\r");
    terminal.shows("step 300 is A");
    terminal.send(b"1");
    terminal.shows("4 tokens");
    // Rotated away, cut short, written whole again, asked for again: all while the panel is open.
    terminal.send(b"8");
    std::fs::remove_dir_all(directory.path().join("runs/step-100")).expect("removes");
    terminal.send(b"g");
    terminal.shows("step 100 · gone");
    let weights = directory.path().join("runs/step-200/model.safetensors");
    let whole = std::fs::read(&weights).expect("reads");
    std::fs::write(&weights, &whole[..whole.len() / 2]).expect("writes");
    terminal.send(b"l");
    terminal.shows("step 200 · incomplete: model.safetensors is not written whole");
    std::fs::write(&weights, &whole).expect("writes");
    terminal.shows("step 200 · done");
    terminal.send(b"r");
    terminal.shows("step 200 is read again");
    terminal.send(b"hr");
    terminal.shows("its files were deleted");
}
