//! The gallery of figures is what its commands draw.

use testing::checkpoint_copy::{attnscope, text};

use super::blocks::{other_code, words};

#[test]
fn every_figure_is_what_its_command_draws() {
    let root = testing::root();
    let page = std::fs::read_to_string(root.join("docs/figures.md")).expect("the gallery");
    let directory = tempfile::tempdir().expect("a directory");
    let is_updated = std::env::var_os("UPDATE").is_some();
    let mut n_figures = 0;
    for line in other_code(&page) {
        let mut words = words(&line);
        let output = words.iter().position(|word| word == "--output");
        let Some(output) = output.filter(|_| words.iter().any(|word| word == "--figure")) else {
            continue;
        };
        let Some(name) = words[output + 1].strip_prefix("docs/pictures/") else {
            continue;
        };
        n_figures += 1;
        let committed = root.join("docs/pictures").join(name);
        let drawn = directory.path().join(name);
        words[output + 1] = drawn.display().to_string();
        let ran = attnscope(&words[1..]);
        assert_eq!(ran.status.code(), Some(0), "{line}: {}", text(&ran.stderr));
        let drawn = std::fs::read(drawn).expect("the figure");
        if is_updated {
            std::fs::write(&committed, &drawn).expect("the figure is written");
        }
        assert!(drawn.len() < 100 << 10, "{line}: {} bytes", drawn.len());
        let same = std::fs::read(&committed).is_ok_and(|bytes| bytes == drawn);
        assert!(same, "{line}: UPDATE=1 cargo test --test commands gallery");
    }
    assert!(n_figures >= 5, "{n_figures} figures");
}
