//! A trainer that saves in place beside reports and screens: it ends none of them, and no report mixes two saves.

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testing::checkpoint_copy::{Copy, file_of, text, weights};
use testing::pty::Terminal;
use testing::running::TOKENS;

/// How long the short run takes; `ATTNSCOPE_SOAK_SECONDS` asks for more. Each 300 seconds hold 200 reports and 20 screens.
const SECONDS: u64 = 6;
const SECONDS_PER_REPORT: f64 = 1.5;
const SECONDS_PER_SCREEN: f64 = 15.0;
/// Between two saves.
const EVERY: Duration = Duration::from_millis(500);
/// How long a save takes: a piece, a pause, the next piece.
const N_PIECES: usize = 24;
const PAUSE: Duration = Duration::from_millis(4);

/// Two saves of one training: the same names and shapes, other numbers.
fn saves(copy: &Copy) -> [Vec<u8>; 2] {
    let first = copy.weight_bytes();
    let mut second = weights(&first);
    for stored in second.values_mut() {
        for value in stored.bytes.chunks_exact_mut(4) {
            let now = f32::from_le_bytes(value.try_into().expect("four bytes"));
            value.copy_from_slice(&(now * 1.25).to_le_bytes());
        }
    }
    // Written in the same order, so that both saves have the same length.
    [file_of(&weights(&first)), file_of(&second)]
}

/// Saves as `torch.save` does, or over the bytes that are there.
fn save(path: &Path, bytes: &[u8], truncates: bool) {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .truncate(truncates)
        .open(path)
        .expect("opens");
    for piece in bytes.chunks(bytes.len().div_ceil(N_PIECES)) {
        file.write_all(piece).expect("writes");
        std::thread::sleep(PAUSE);
    }
}

fn report(path: &Path) -> (Option<i32>, Vec<u8>, String) {
    let ran = Command::new(testing::program())
        .args(["report", path.to_str().expect("a path"), "--tokens", TOKENS])
        .output()
        .expect("the program starts");
    assert_eq!(ran.status.signal(), None, "{}", text(&ran.stderr));
    (ran.status.code(), ran.stdout, text(&ran.stderr))
}

/// One screen: walks through panels, reads again when the mark asks for it, and quits.
fn screen(path: &Path, directory: &Path, n_marked: &AtomicUsize) {
    let program = testing::program();
    let arguments = [&program, path].map(|path| path.to_str().expect("a path"));
    let arguments = [&arguments[..], &["--tokens", TOKENS]].concat();
    let mut terminal = Terminal::start(&arguments, &[], directory, (100, 30));
    let wait = Duration::from_secs(10);
    let opened = terminal.until(wait, |screen| screen.contents().contains("Overview"));
    if opened.is_none() {
        // Half a save cannot be opened: then it ended with a reason.
        let status = terminal.ends();
        assert_eq!(status.code(), Some(2), "{}", terminal.text());
        assert!(terminal.not_restored().is_empty());
        return;
    }
    let begun = Instant::now();
    for key in "123456789".chars().cycle() {
        terminal.send(key.to_string().as_bytes());
        std::thread::sleep(Duration::from_millis(60));
        if terminal.text().contains("changed on disk") {
            n_marked.fetch_add(1, Ordering::Relaxed);
            terminal.send(b"r");
        }
        if begun.elapsed() > Duration::from_secs(4) {
            break;
        }
    }
    terminal.send(b"\x1bq");
    terminal.send(b"q");
    let status = terminal.ends();
    assert_eq!(status.signal(), None);
    assert!(matches!(status.code(), Some(0 | 2)), "{status:?}");
    assert_eq!(terminal.not_restored(), Vec::<&str>::new());
}

/// For one whole report to come between two saves.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn a_trainer_that_saves_in_place_ends_nothing_and_no_report_mixes_two_saves() {
    let seconds = std::env::var("ATTNSCOPE_SOAK_SECONDS").ok();
    let seconds: u64 = seconds.map_or(SECONDS, |text| text.parse().expect("seconds"));
    let copy = Copy::of("gpt2");
    let path = copy.file("model.safetensors");
    let saves = saves(&copy);
    let expected = [0, 1].map(|which| {
        save(&path, &saves[which], true);
        let (code, out, said) = report(copy.path());
        assert_eq!(code, Some(0), "{said}");
        out
    });
    assert_ne!(expected[0], expected[1]);
    let is_over = AtomicBool::new(false);
    let (n_whole, n_refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (n_screens, n_marked) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let length = Duration::from_secs(seconds);
    let begun = Instant::now();
    // Runs something again and again, so many times in all of the time.
    let paced = |every: f64, work: &dyn Fn()| {
        for nth in 0.. {
            let at = Duration::from_secs_f64(every * f64::from(nth));
            if at >= length {
                return;
            }
            std::thread::sleep(at.saturating_sub(begun.elapsed()));
            work();
        }
    };
    std::thread::scope(|scope| {
        let trainer = scope.spawn(|| {
            let mut n_saves = 0;
            while !is_over.load(Ordering::Relaxed) {
                n_saves += 1;
                // Every other pair in place at the same length, where nothing but times tells.
                save(&path, &saves[n_saves % 2], n_saves % 4 < 2);
                std::thread::sleep(EVERY - PAUSE * N_PIECES as u32);
            }
            n_saves
        });
        let reports = scope.spawn(|| {
            let one = || {
                let (code, out, said) = report(copy.path());
                match code {
                    Some(0) => {
                        let is_whole = expected.contains(&out);
                        assert!(is_whole, "a report of neither save:\n{}", text(&out));
                        n_whole.fetch_add(1, Ordering::Relaxed);
                    }
                    Some(2) => {
                        assert!(said.contains("model.safetensors"), "{said}");
                        n_refused.fetch_add(1, Ordering::Relaxed);
                    }
                    other => panic!("exit code {other:?}: {said}"),
                }
            };
            paced(SECONDS_PER_REPORT, &one);
            // On a busy machine a report takes longer than what lies between two saves: one has to be lucky.
            while n_whole.load(Ordering::Relaxed) == 0 && begun.elapsed() < PATIENCE {
                one();
            }
        });
        let screens = scope.spawn(|| {
            let directory = tempfile::tempdir().expect("a directory");
            paced(SECONDS_PER_SCREEN, &|| {
                screen(copy.path(), directory.path(), &n_marked);
                n_screens.fetch_add(1, Ordering::Relaxed);
            });
        });
        let ended = [reports.join(), screens.join()];
        is_over.store(true, Ordering::Relaxed);
        let n_saves = trainer.join().expect("a trainer");
        for thread in ended {
            if let Err(panic) = thread {
                std::panic::resume_unwind(panic);
            }
        }
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        let told = format!(
            "{n_saves} saves; reports: {} whole, {} refused; screens: {}, marked as changed {} times",
            of(&n_whole),
            of(&n_refused),
            of(&n_screens),
            of(&n_marked)
        );
        // Kept by `cargo test -- --nocapture`.
        let _ = writeln!(std::io::stdout(), "{told}");
        assert!(of(&n_whole) > 0 && of(&n_screens) > 0, "{told}");
    });
}
