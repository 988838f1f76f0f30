//! Every picture of the manual is what its command in docs/figures.md draws: figures, and panels of the screen.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use testing::checkpoint_copy::text;

use super::blocks::{other_code, words};

/// Where the pictures are, as the commands name them.
const PLACE: &str = "docs/pictures/";
/// Compared by tests of their own: recorded on a terminal, or drawn from measurements.
const RECORDED: [&str; 3] = ["session.svg", "debug.svg", "against_torch.svg"];
/// So that a page loads at once.
const MOST_BYTES: usize = 100 << 10;

/// A command of the gallery, and the picture that it makes.
struct Picture {
    words: Vec<String>,
    output_at: usize,
    name: String,
}

impl Picture {
    /// `None` for a line that makes no picture of the manual.
    fn of(line: &str) -> Option<Self> {
        let words = words(line);
        let output_at = words.iter().position(|word| word == "--output")? + 1;
        let name = words.get(output_at)?.strip_prefix(PLACE)?.to_owned();
        Some(Self {
            words,
            output_at,
            name,
        })
    }

    /// Draws it, the same on every processor. Other vector instructions round otherwise, which a shade of a map shows.
    fn drawn(&self, directory: &Path) -> Result<Vec<u8>, String> {
        let drawn = directory.join(&self.name);
        let mut words = self.words.clone();
        words[self.output_at] = drawn.display().to_string();
        let mut command = Command::new(testing::program());
        command.args(&words[1..]).current_dir(testing::root());
        let settings = [("ATTNSCOPE_SIMD", "portable"), ("ATTNSCOPE_CONFIG", "")];
        let ran = command.envs(settings).output().expect("the program");
        if ran.status.code() != Some(0) {
            return Err(text(&ran.stderr));
        }
        std::fs::read(drawn).map_err(|error| error.to_string())
    }
}

/// Why a picture is not what its command draws; under `UPDATE=1` it is written anew instead.
fn difference(picture: &Picture, directory: &Path) -> Option<String> {
    let committed = testing::root().join(PLACE).join(&picture.name);
    let drawn = match picture.drawn(directory) {
        Ok(drawn) => drawn,
        Err(why) => return Some(format!("{}: {why}", picture.words.join(" "))),
    };
    if drawn.len() > MOST_BYTES {
        return Some(format!("{}: {} bytes", picture.name, drawn.len()));
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&committed, &drawn).expect("the picture is written");
    }
    let is_same = std::fs::read(&committed).is_ok_and(|bytes| bytes == drawn);
    (!is_same).then(|| format!("{} is not what its command draws", picture.name))
}

#[test]
fn every_picture_is_what_its_command_draws() {
    let root = testing::root();
    let page = std::fs::read_to_string(root.join("docs/figures.md")).expect("the gallery");
    let lines = other_code(&page);
    let pictures: Vec<Picture> = lines.iter().filter_map(|line| Picture::of(line)).collect();
    let directory = tempfile::tempdir().expect("a directory");
    let left = Mutex::new(pictures.iter());
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let next = left.lock().expect("no panic").next();
                    let Some(picture) = next else { break };
                    let found = difference(picture, directory.path());
                    wrong.lock().expect("no panic").extend(found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(
        wrong.is_empty(),
        "{}\n\nUPDATE=1 cargo test --test commands gallery",
        wrong.join("\n")
    );
    // No picture is made by hand, and none is left over.
    let made: BTreeSet<String> = pictures
        .iter()
        .map(|picture| picture.name.clone())
        .collect();
    let files = std::fs::read_dir(root.join(PLACE)).expect("the pictures");
    let files = files.map(|file| file.expect("an entry").file_name());
    let files: BTreeSet<String> = files
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| !RECORDED.contains(&name.as_str()))
        .collect();
    assert_eq!(made, files);
    assert_eq!(made.len(), pictures.len(), "two commands make one picture");
}
