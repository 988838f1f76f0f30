//! Runs a program without the terminal, and keeps the last line that it says.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use super::state::msg::{Msg, ReadyCommand};

/// Bytes of a line that are kept.
const MOST: usize = 1024;

/// Runs a command on a thread of its own, which tells how it ended. It goes on when the screen ends.
pub fn begin_in_background(command: ReadyCommand, sender: Sender<Msg>) {
    thread::spawn(move || {
        let ended = run_in_background(&command.words);
        drop(sender.send(Msg::Commanded(command.nth, ended)));
    });
}

/// Runs a program to its end; returns the last line of its output.
///
/// # Errors
/// When it cannot be started, or fails; the error has the last line of what it said about that.
fn run_in_background(words: &[String]) -> Result<String, String> {
    let Some((program, arguments)) = words.split_first() else {
        return Err("there is no program to run".to_owned());
    };
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|e| format!("{program} cannot be started ({e})"))?;
    let (said, complained) = last_lines(&mut child);
    match child.wait() {
        Ok(status) if status.success() => Ok(said),
        Ok(status) => {
            let why = [complained, said].into_iter().find(|line| !line.is_empty());
            let why = why.map_or(String::new(), |line| format!(": {line}"));
            Err(format!("{program} failed ({status}){why}"))
        }
        Err(e) => Err(format!("{program} cannot be waited for ({e})")),
    }
}

/// The last lines of both outputs, which are read at once so that neither blocks the program.
fn last_lines(child: &mut Child) -> (String, String) {
    let complains = child.stderr.take();
    let complained = thread::spawn(move || complains.map_or(String::new(), last_line));
    let said = child.stdout.take().map_or(String::new(), last_line);
    (said, complained.join().unwrap_or_default())
}

/// The last line that is not empty.
fn last_line(output: impl Read) -> String {
    let mut reader = BufReader::new(output);
    let mut last = Vec::new();
    loop {
        let mut line = Vec::new();
        // A line without an end must not fill the memory.
        let read = (&mut reader).take(MOST as u64).read_until(b'\n', &mut line);
        match read {
            Ok(0) | Err(_) => return String::from_utf8_lossy(&last).trim().to_owned(),
            Ok(_) if !line.trim_ascii().is_empty() => last = line,
            Ok(_) => {}
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn run(words: &[&str]) -> Result<String, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        run_in_background(&words)
    }

    #[test]
    fn the_last_line_is_said_and_so_is_a_failure() {
        assert_eq!(
            run(&["sh", "-c", "echo a; echo \"$1\"; echo", "sh", "b; echo c"]),
            Ok("b; echo c".to_owned())
        );
        let failed = run(&["sh", "-c", "echo fine; echo no disk >&2; exit 3"]);
        let failed = failed.expect_err("it fails");
        assert!(
            failed.contains("exit status: 3") && failed.ends_with("no disk"),
            "{failed}"
        );
        let missing = run(&["no-such-program-anywhere"]).expect_err("there is none");
        assert!(
            missing.contains("no-such-program-anywhere cannot be started"),
            "{missing}"
        );
    }

    #[test]
    fn much_output_on_both_sides_blocks_nothing() {
        let script = "i=0; while [ $i -lt 4000 ]; do echo 0123456789012345678901234567890123456789; \
                      echo 0123456789012345678901234567890123456789 >&2; i=$((i+1)); done; echo end";
        assert_eq!(run(&["sh", "-c", script]), Ok("end".to_owned()));
    }
}
