//! Tests of the text field, by the keys that are pressed in it.

use super::*;

fn press(editor: &mut Editor, code: KeyCode) -> Edited {
    editor.key(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn ids_are_parsed_and_an_invalid_id_is_named() {
    let mut editor = Editor::new(&Source::Ids(vec![1, 2]));
    press(&mut editor, KeyCode::Char('x'));
    assert_eq!(press(&mut editor, KeyCode::Enter), Edited::Going);
    assert!(
        editor.problem.as_ref().is_some_and(|p| p.contains("2x")),
        "{:?}",
        editor.problem
    );
    press(&mut editor, KeyCode::Backspace);
    assert_eq!(
        press(&mut editor, KeyCode::Enter),
        Edited::Submitted(Request::ids(vec![1, 2]))
    );
}

#[test]
fn up_shows_older_prompts_and_down_returns_to_the_typed_text() {
    let mut editor = Editor {
        past: vec!["one".to_owned(), "two".to_owned()],
        ..Editor::new(&Source::Text("new".to_owned()))
    };
    let mut texts = Vec::new();
    for code in [
        KeyCode::Up,
        KeyCode::Up,
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Down,
    ] {
        press(&mut editor, code);
        texts.push(editor.area.lines().join(" "));
    }
    assert_eq!(texts, ["two", "one", "one", "two", "new"]);
    press(&mut editor, KeyCode::Down);
    assert_eq!(editor.area.lines(), ["new"]);
}

#[test]
fn an_empty_text_is_not_submitted_and_escape_closes_the_editor() {
    let mut editor = Editor::new(&Source::Text("a".to_owned()));
    press(&mut editor, KeyCode::Backspace);
    assert_eq!(press(&mut editor, KeyCode::Enter), Edited::Going);
    assert!(editor.problem.is_some());
    assert_eq!(press(&mut editor, KeyCode::Esc), Edited::Dismissed);
}

#[test]
fn letters_that_are_shortcuts_elsewhere_are_typed_as_text() {
    let mut editor = Editor::new(&Source::Text(String::new()));
    for c in "q?1".chars() {
        assert_eq!(press(&mut editor, KeyCode::Char(c)), Edited::Going);
    }
    assert_eq!(
        press(&mut editor, KeyCode::Enter),
        Edited::Submitted(Request::text("q?1"))
    );
}

#[test]
fn keys_with_control_edit_as_in_a_shell() {
    let mut editor = Editor::new(&Source::Text("one two.three  four".to_owned()));
    let mut control = |letter: char| {
        editor.key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
        (editor.area.lines().join("\n"), editor.area.cursor().1)
    };
    let is = |found: (String, usize), text: &str, column: usize| {
        assert_eq!(found, (text.to_owned(), column));
    };
    is(control('w'), "one two.three  ", 15);
    is(control('w'), "one ", 4);
    is(control('a'), "one ", 0);
    // At the start of a line there is nothing to delete, and Ctrl-U does not undo.
    is(control('u'), "one ", 0);
    is(control('f'), "one ", 1);
    is(control('k'), "o", 1);
    is(control('e'), "o", 1);
    is(control('k'), "o", 1);
    is(control('u'), "", 0);
    is(control('_'), "o", 1);
}

#[test]
fn control_u_clears_what_was_typed_and_keeps_the_line_above() {
    let mut editor = Editor::new(&Source::Text("above\nbelow".to_owned()));
    let clear = KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL);
    for _ in 0..3 {
        editor.key(clear);
    }
    assert_eq!(editor.area.lines(), ["above", ""]);
}

#[test]
fn values_are_edited_as_the_path_of_their_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let [first, second] = ["a.csv", "b.csv"].map(|name| directory.path().join(name));
    std::fs::write(&first, "1,2\n").expect("writes");
    let mut editor = Editor::new(&Source::Values(Values::read(&first).expect("reads")));
    assert_eq!(editor.area.lines(), [first.display().to_string()]);
    editor.area = area_of(&second.display().to_string());
    assert_eq!(press(&mut editor, KeyCode::Enter), Edited::Going);
    let problem = editor.problem.clone().expect("a problem");
    assert!(problem.contains("b.csv: cannot be opened"), "{problem}");
    std::fs::write(&second, "3\n").expect("writes");
    match press(&mut editor, KeyCode::Enter) {
        Edited::Submitted(Request {
            source: Source::Values(values),
            ..
        }) => assert_eq!(values.rows(), [vec![3.0]]),
        other => panic!("{other:?}"),
    }
}

fn control(editor: &mut Editor, letter: char) -> Edited {
    editor.key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL))
}

fn type_in(editor: &mut Editor, text: &str) {
    for letter in text.chars() {
        assert_eq!(press(editor, KeyCode::Char(letter)), Edited::Going);
    }
}

fn with_past(past: &[&str]) -> Editor {
    Editor {
        past: past.iter().map(|text| (*text).to_owned()).collect(),
        ..Editor::new(&Source::Text("new".to_owned()))
    }
}

#[test]
fn control_o_takes_the_text_of_a_file_whose_path_tab_completes() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().display().to_string();
    for (name, text) in [
        ("prompt-one.txt", &b"first\nsecond\n"[..]),
        ("prompt-two.txt", b"other"),
        ("bytes.bin", b"ab\xff"),
    ] {
        std::fs::write(directory.path().join(name), text).expect("writes");
    }
    let mut editor = with_past(&[]);
    control(&mut editor, 'o');
    editor.paste(&format!("{place}/pro"));
    press(&mut editor, KeyCode::Tab);
    type_in(&mut editor, "o");
    press(&mut editor, KeyCode::Tab);
    match &editor.mode {
        Mode::Opening(field) => assert_eq!(field.path, format!("{place}/prompt-one.txt")),
        mode => panic!("{mode:?}"),
    }
    assert_eq!(press(&mut editor, KeyCode::Enter), Edited::Going);
    assert_eq!(editor.text(), "first\nsecond");
    // What cannot be read leaves the text, and says what was found.
    for (name, said) in [("bytes.bin", "from byte 2 on"), ("none.txt", "none.txt")] {
        control(&mut editor, 'o');
        editor.paste(&format!("{place}/{name}"));
        press(&mut editor, KeyCode::Enter);
        let problem = editor.problem.clone().unwrap_or_default();
        assert!(problem.contains(said), "{problem}");
        press(&mut editor, KeyCode::Esc);
        assert_eq!(editor.text(), "first\nsecond");
    }
}

#[test]
fn the_cursor_moves_by_token_over_lines_and_characters_of_several_bytes() {
    let bytes = PromptForm::Tokenizer(attnscope_prompt::Tokenizer::bytes());
    let mut editor = Editor {
        prompt_form: Some(Arc::new(bytes)),
        ..Editor::new(&Source::Text("aé\nb".to_owned()))
    };
    editor.cut_again();
    let mut step = |code| {
        editor.key(KeyEvent::new(code, KeyModifiers::ALT));
        let pieces = editor.pieces.as_ref().expect("tokens");
        let cursor = editor.area.cursor();
        (pieces.at, pieces.n, (cursor.0, cursor.1))
    };
    // Five bytes: a, two of é, the line break, b. The second byte of é has no place of its own.
    assert_eq!(step(KeyCode::Left), (4, 5, (1, 0)));
    assert_eq!(step(KeyCode::Left), (3, 5, (0, 2)));
    assert_eq!(step(KeyCode::Left), (1, 5, (0, 1)));
    assert_eq!(step(KeyCode::Left), (0, 5, (0, 0)));
    assert_eq!(step(KeyCode::Right), (1, 5, (0, 1)));
    assert_eq!(step(KeyCode::Right), (3, 5, (0, 2)));
    type_in(&mut editor, "é");
    assert_eq!(editor.pieces.as_ref().map(|pieces| pieces.n), Some(7));
}

#[test]
fn control_g_asks_for_the_users_own_editor_with_the_text() {
    let mut editor = with_past(&[]);
    let asked = control(&mut editor, 'g');
    assert_eq!(asked, Edited::Outside("new".to_owned()));
    editor.replace("two\nlines");
    let run = press(&mut editor, KeyCode::Enter);
    assert_eq!(run, Edited::Submitted(Request::text("two\nlines")));
}
