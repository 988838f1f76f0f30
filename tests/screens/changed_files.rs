//! Files that change on disk under the screen: it says so, and reads them again.

use attnscope_prompt::Request;
use attnscope_screen::{Depth, Panel};
use crossterm::event::KeyCode;
use testing::checkpoint_copy::Copy;
use testing::screen::Screen;

fn open(copy: &Copy) -> Screen {
    let request = Request::ids(vec![1, 2, 3, 4]);
    Screen::open(
        Some(copy.path().to_path_buf()),
        request,
        (120, 40),
        Depth::Truecolor,
    )
}

#[test]
fn a_change_is_told_while_nothing_runs_and_the_files_are_read_again() {
    let copy = Copy::of("gpt2");
    let mut screen = open(&copy);
    let n_heads = screen.app.scene().n_heads();
    copy.config(|config| drop(config.insert("n_head".to_owned(), (2 * n_heads).into())));
    screen.wait_for(|app| app.changed.is_some());
    let text = screen.text();
    assert!(
        text.contains("changed on disk · r reads it again"),
        "{text}"
    );
    assert!(text.contains("config.json"), "{text}");
    screen.app.selection.layer_idx = 2;
    screen.app.selection.head_idx = n_heads - 1;
    screen.typed("r");
    let selected = screen.app.selection;
    assert_eq!((selected.layer_idx, selected.head_idx), (2, n_heads - 1));
    assert_eq!(screen.app.changed, None);
    assert_eq!(screen.app.scene().n_heads(), 2 * n_heads);
    assert!(!screen.text().contains("changed on disk"));
    let run = screen.app.scene().run().expect("a run");
    assert_eq!(run.prompt.tokens, [1, 2, 3, 4]);
}

#[test]
fn what_fails_because_files_changed_marks_the_run() {
    let copy = Copy::of("gpt2");
    let mut screen = open(&copy);
    screen.go(Panel::Model);
    let weights = copy.file("model.safetensors");
    let whole = std::fs::read(&weights).expect("reads");
    std::fs::write(&weights, &whole[..whole.len() / 2]).expect("writes");
    screen.key(KeyCode::Enter);
    let text = screen.text();
    assert!(
        text.contains("changed on disk · r reads it again"),
        "{text}"
    );
    // Half a file cannot be read: what is shown stays, and says why.
    screen.typed("R");
    let text = screen.text();
    assert!(text.contains("changed on disk"), "{text}");
    assert!(screen.app.notice.is_some() && !screen.app.is_over);
    std::fs::write(&weights, &whole).expect("writes");
    screen.typed("R");
    assert_eq!(
        (screen.app.changed.as_ref(), screen.app.notice.as_ref()),
        (None, None)
    );
    screen.go(Panel::Head);
    assert!(screen.app.scene().shown_detail().is_some());
}

#[test]
fn a_file_of_settings_is_named_where_findings_are() {
    let copy = Copy::of("gpt2");
    let settings = "[set]\nscale = 2\n";
    std::fs::write(copy.file("attnscope.toml"), settings).expect("writes");
    let mut screen = open(&copy);
    screen.go(Panel::Checks);
    let text = screen.text();
    assert!(
        text.contains("attnscope.toml beside the checkpoint sets scale = 2"),
        "{text}"
    );
}
