//! Two sentences on the screen: words on both axes, the axis flipped with a what-if, both texts edited in place.

use attnscope::bundles::demo_alignment;
use attnscope_compute::attention::SoftmaxAxis;
use attnscope_screen::Panel;
use crossterm::event::KeyCode;
use testing::screen::Screen;

fn demo(size: (u16, u16)) -> Screen {
    let alignment = demo_alignment(SoftmaxAxis::Keys).expect("compiled in");
    Screen::of_alignment(alignment, size)
}

#[test]
fn the_map_has_the_words_of_both_sentences_on_its_axes() {
    for size in [(120, 40), (80, 24)] {
        let mut screen = demo(size);
        screen.key(KeyCode::Char('2'));
        assert_eq!(screen.app.panel, Panel::Head);
        let text = screen.text();
        for word in ["bought", "eighty", "july"] {
            assert!(text.contains(word), "{word} at {size:?} in\n{text}");
        }
        assert!(text.contains("neunten") || text.contains("juli"), "{text}");
        let detail = screen.app.scene().shown_detail().expect("the head");
        assert_eq!((detail.n_queries, detail.n_keys), (8, 10));
        // What there is to know of the tables stands in the Model panel.
        screen.key(KeyCode::Char('5'));
        let text = screen.text();
        for part in ["131 × 300", "137 × 300", "8, 0 unknown"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}

#[test]
fn what_predicts_nothing_lists_the_tokens_by_their_weight_and_no_value_that_is_not_defined() {
    for size in [(120, 40), (80, 24)] {
        let mut screen = demo(size);
        screen.typed("4");
        let text = screen.text();
        let below = text.split("strongest keys").nth(1).expect("a list");
        assert!(
            below.contains("1.000") && below.contains("gekauft"),
            "{text}"
        );
        assert!(
            text.contains("an alignment attends, and predicts no tokens"),
            "{text}"
        );
        screen.typed("r");
        assert!(
            screen.text().contains("queries that give most"),
            "{}",
            screen.text()
        );
        screen.typed("1");
        assert!(!screen.text().contains("NaN"), "{}", screen.text());
    }
}

#[test]
fn the_axis_is_flipped_in_place_and_the_check_fires() {
    let mut screen = demo((120, 40));
    assert!(!screen.text().contains("error"));
    screen.key(KeyCode::Char('w'));
    screen.typed("softmax_axis=queries");
    screen.key(KeyCode::Enter);
    let findings = screen.app.scene().findings();
    assert!(findings.iter().any(|finding| finding.check == "wrong-axis"));
    assert!(screen.text().contains("WHAT IF softmax_axis=queries"));
    // The difference needs the maps of both sides.
    screen.key(KeyCode::Char('2'));
    screen.key(KeyCode::Char('v'));
    let difference = screen
        .app
        .scene()
        .difference()
        .expect("a difference")
        .finest();
    assert!(difference.cells.iter().any(|cell| cell.abs() > 0.1));
    screen.key(KeyCode::Char('W'));
    assert!(
        screen
            .app
            .scene()
            .findings()
            .iter()
            .all(|finding| finding.check != "wrong-axis")
    );
}

#[test]
fn both_sentences_are_edited_in_place() {
    let mut screen = demo((120, 40));
    screen.key(KeyCode::Char('e'));
    for _ in 0..200 {
        screen.key(KeyCode::Backspace);
    }
    screen.typed("the nurse | die zahl");
    screen.key(KeyCode::Enter);
    screen.key(KeyCode::Char('2'));
    let text = screen.text();
    assert!(text.contains("⟨nurse⟩?") && text.contains("zahl"), "{text}");
    screen.key(KeyCode::Char('e'));
    screen.typed(" | und");
    screen.key(KeyCode::Enter);
    let notice = screen.app.notice.clone().expect("a reason");
    assert!(notice.contains("QUERY WORDS | KEY WORDS"), "{notice}");
}

#[test]
fn every_panel_draws_sentences_of_nothing_but_unknown_words() {
    let demo = demo_alignment(SoftmaxAxis::Keys).expect("compiled in");
    let unknown = demo.of_texts("x y z | zzz yyy").expect("two texts");
    for size in [(120, 40), (80, 24)] {
        let mut screen = Screen::of_alignment(unknown.clone(), size);
        for panel in Panel::ALL {
            screen.go(panel);
            assert!(!screen.text().is_empty());
        }
    }
}
