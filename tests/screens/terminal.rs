//! The program on a terminal: every key is answered, and the terminal is given back however it ends.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;
use testing::checkpoint_copy::Copy;
use testing::pty::{Terminal, bold, is_ignored};

/// A key without an answer for so long has stalled: a frame takes some milliseconds.
pub const STALLED: Duration = Duration::from_secs(2);

pub struct Started {
    pub terminal: Terminal,
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

pub fn start() -> Started {
    let started = start_with(&[], (100, 30));
    started.terminal.shows("3 notes");
    started
}

fn opens(terminal: &Terminal, key: char, within: Duration) -> Option<Duration> {
    terminal.send(key.to_string().as_bytes());
    let tab = format!(" {key} ");
    terminal.until(within, |screen| bold(screen, 1).contains(&tab))
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
fn the_users_own_editor_gets_the_keys_and_its_text_comes_back() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    let editor = directory.path().join("editor");
    let script = "#!/bin/sh\nprintf 'which animal? '\nread -r animal < /dev/tty\n\
                  [ -n \"$animal\" ] || exit 3\nprintf 'the old %s\\n' \"$animal\" > \"$2\"\n";
    std::fs::write(&editor, script).expect("writes");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&editor, executable).expect("may be run");
    // The variable holds an option too.
    let command = format!("{} --wait", editor.display());
    let Started { mut terminal, .. } = start_with(&[("VISUAL", &command)], (100, 30));
    terminal.shows("3 notes");
    terminal.send(b"e");
    terminal.shows("Alt-Enter");
    terminal.send(b"\x07");
    terminal.shows("which animal?");
    terminal.send(b"queen\n");
    terminal.shows("the old queen");
    // One that fails leaves the text.
    terminal.send(b"\x07");
    terminal.shows("which animal?");
    terminal.send(b"\n");
    terminal.shows("exit status: 3");
    terminal.send(b"\r");
    terminal.shows("3 tokens");
    terminal.send(b"q");
    assert_eq!(terminal.ends().code(), Some(0));
    assert_eq!(terminal.not_restored(), [""; 0]);
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
fn a_chat_template_that_nests_without_end_leaves_the_terminal_as_it_was() {
    let copy = Copy::of_directory(&testing::root().join("fixtures/induction"));
    let from = testing::root().join("fixtures/induction/tokenizer.json");
    std::fs::copy(from, copy.path().join("tokenizer.json")).expect("copies");
    for deep in [
        format!("{{{{ {}1 }}}}", "-".repeat(18_750)),
        format!("{{{{ {}1{} }}}}", "(".repeat(18_750), ")".repeat(18_750)),
        format!("{{% if 1 %}}{}{{% endif %}}", "{% elif 1 %}".repeat(9_000)),
    ] {
        let settings = serde_json::json!({ "chat_template": deep });
        copy.write("tokenizer_config.json", settings.to_string());
        let program = testing::program();
        let path = copy.path().to_str().expect("a path").to_owned();
        let program = program.to_str().expect("a path");
        let words = [program, &path, "--text", "the old king", "--chat"];
        let directory = tempfile::tempdir().expect("a directory");
        let mut terminal = Terminal::start(&words, &[], directory.path(), (100, 30));
        assert_eq!(terminal.ends().code(), Some(2), "{}", terminal.text());
        assert_eq!(terminal.not_restored(), [""; 0]);
        assert!(
            terminal.text().contains("attnscope: "),
            "{}",
            terminal.text()
        );
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
    terminal.send(b"H");
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
