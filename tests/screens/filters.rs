//! Filters of lists, the search that the finder leaves behind, and the filter of the help.

use attnscope_prompt::Request;
use attnscope_screen::{Depth, Panel};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use testing::judged::fixture;
use testing::screen::Screen;

const TEXT: &str = "the old king gave a red apple to the old king";

fn demo(size: (u16, u16)) -> Screen {
    Screen::open(None, Request::text(TEXT), size, Depth::None)
}

fn last_line(screen: &mut Screen) -> String {
    screen.text().lines().last().expect("a line").to_owned()
}

#[test]
fn a_filter_of_findings_shows_how_many_match_and_keys_go_through_them() {
    let mut screen = demo((120, 40));
    screen.typed("6/leak");
    let line = last_line(&mut screen);
    assert!(line.starts_with(" /leak▏ 5 of "), "{line}");
    assert!(line.contains("Esc shows all"), "{line}");
    screen.key(KeyCode::Enter);
    let text = screen.text();
    assert!(!text.contains(" entropy-collapse "), "{text}");
    let at = |screen: &Screen| screen.app.checks_view.line_idx;
    let first = at(&screen);
    screen.typed("n");
    let second = at(&screen);
    assert!(second > first);
    screen.key(KeyCode::Down);
    assert!(at(&screen) > second);
    screen.typed("NN");
    assert_eq!(at(&screen), first);
    screen.typed("N");
    let last = at(&screen);
    assert!(last > second, "the last match comes before the first");
    screen.key(KeyCode::Down);
    assert_eq!(at(&screen), last, "arrows stop there");
    screen.key(KeyCode::Esc);
    assert_eq!(screen.app.panel, Panel::Checks);
    assert!(!screen.text().contains("· 5 of "), "{}", screen.text());
    // Without a filter, the key means nothing here.
    screen.typed("n");
    assert_eq!(at(&screen), last);
}

#[test]
fn an_inverse_word_leaves_rows_out_and_letters_in_order_find_what_no_word_does() {
    let mut screen = demo((120, 40));
    screen.typed("5/weight !mlp");
    screen.key(KeyCode::Enter);
    let text = screen.text();
    assert!(
        text.contains("c_attn.weight") && !text.contains(".mlp."),
        "{text}"
    );
    screen.key(KeyCode::Esc);
    screen.typed("/h1cfcw");
    screen.key(KeyCode::Enter);
    let text = screen.text();
    assert!(text.contains("h.1.mlp.c_fc.weight"), "{text}");
}

#[test]
fn heads_that_a_filter_leaves_out_leave_the_ranking_and_n_is_the_next_match_until_esc() {
    let mut screen = demo((120, 40));
    let statistic = screen.app.statistic_idx;
    screen.typed("/L1");
    screen.key(KeyCode::Enter);
    let text = screen.text();
    assert!(text.contains("· 4 of 8"), "{text}");
    assert!(!text.contains("│ L0H1 "), "{text}");
    assert_eq!(screen.app.selection.layer_idx, 1);
    let here = screen.app.selection;
    screen.typed("n");
    assert_ne!(screen.app.selection, here);
    screen.typed("N");
    assert_eq!(
        (screen.app.selection, screen.app.statistic_idx),
        (here, statistic)
    );
    screen.key(KeyCode::Esc);
    screen.typed("n");
    assert_ne!(screen.app.statistic_idx, statistic);
    // A filter that is not kept leaves the selection where it was.
    screen.typed("/L0H3");
    assert_ne!(screen.app.selection, here);
    screen.key(KeyCode::Esc);
    assert_eq!(screen.app.selection, here);
}

#[test]
fn one_match_is_gone_to_and_what_no_row_has_is_looked_for_elsewhere() {
    let mut screen = demo((120, 40));
    screen.typed("/L1H2");
    screen.key(KeyCode::Enter);
    assert_eq!(screen.app.selection.head().to_string(), "L1H2");
    assert!(screen.app.filters.is_empty());
    screen.typed("4/apple");
    screen.key(KeyCode::Enter);
    assert_eq!(screen.app.selection.query_idx, 6);
    screen.typed("/wpe.w");
    screen.key(KeyCode::Enter);
    assert_eq!(screen.app.panel, Panel::Model);
    // Letters that nothing has stay in the finder.
    screen.typed("/@@");
    screen.key(KeyCode::Enter);
    assert!(
        screen.text().contains("nothing by that name"),
        "{}",
        screen.text()
    );
}

#[test]
fn tokens_steps_and_statistics_are_lists_too() {
    let mut screen = demo((120, 40));
    screen.typed("8/king");
    screen.key(KeyCode::Enter);
    assert!(screen.text().contains("· 2 of 11"), "{}", screen.text());
    let first = screen.app.selection.query_idx;
    screen.typed("n");
    let second = screen.app.selection.query_idx;
    assert_eq!([first.min(second), first.max(second)], [2, 10]);
    // The tokens of Tokens are the same list.
    screen.typed("4");
    assert!(screen.text().contains("· 2 of 11"), "{}", screen.text());
    screen.typed("3/max probability");
    screen.key(KeyCode::Enter);
    let title = screen.app.scene().statistic().title;
    assert_eq!(title, "max probability");
    let mut screen = crate::history_parts::log("jump", (120, 40), Depth::None);
    screen.typed("/1");
    let line = last_line(&mut screen);
    assert!(line.contains(" of ") && line.contains(" steps"), "{line}");
    screen.key(KeyCode::Enter);
    let at = screen.app.training.as_ref().expect("a training").at;
    screen.typed("n");
    assert_ne!(screen.app.training.as_ref().expect("a training").at, at);
}

#[test]
fn the_finder_leaves_a_search_behind_in_panels_without_a_list() {
    let mut screen = demo((120, 40));
    screen.typed("2/king");
    screen.key(KeyCode::Enter);
    let line = last_line(&mut screen);
    assert!(line.starts_with(" /king "), "{line}");
    let first = screen.app.selection.query_idx;
    screen.typed("n");
    assert_ne!(screen.app.selection.query_idx, first);
    screen.typed("n");
    assert_eq!(screen.app.selection.query_idx, first);
    screen.key(KeyCode::Esc);
    assert_eq!(screen.app.panel, Panel::Head);
    assert!(!last_line(&mut screen).contains("/king"));
    // In Head, Enter selects the key that the query gives most to.
    screen.key(KeyCode::Home);
    screen.key(KeyCode::Enter);
    let at = screen.app.selection;
    let head = &screen.app.scene().layers_of(at.stack)[at.layer_idx].heads[at.head_idx];
    assert_eq!(at.key_idx, head.summary.rows[at.query_idx].argmax as usize);
}

#[test]
fn the_help_is_filtered_by_letters_and_escape_shows_all_again() {
    let mut screen = demo((120, 40));
    screen.typed("?/bookmark");
    let text = screen.text();
    assert!(text.contains("/bookmark▏ · 2 of "), "{text}");
    assert!(
        text.contains("jump to a bookmark") && !text.contains("this list"),
        "{text}"
    );
    screen.key(KeyCode::Esc);
    assert!(screen.text().contains("choose a statistic"));
    screen.key(KeyCode::Esc);
    assert!(screen.app.overlay.is_none());
}

#[test]
fn earlier_texts_are_a_list_that_is_searched_from_the_text_field() {
    let mut screen = demo((120, 40));
    for text in ["a red apple", "the end of the king"] {
        screen.typed("e");
        let clear = KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL);
        screen.send(attnscope_screen::Msg::Key(clear));
        screen.typed(text);
        screen.key(KeyCode::Enter);
    }
    screen.typed("e");
    let search = KeyEvent::new(KeyCode::Char('r'), KeyModifiers::CONTROL);
    screen.send(attnscope_screen::Msg::Key(search));
    screen.typed("apple");
    screen.key(KeyCode::Enter);
    // The text stands in the field, and runs with the next Enter.
    screen.typed(" and");
    screen.key(KeyCode::Enter);
    assert_eq!(screen.app.scene().n_along(attnscope_screen::Axis::Query), 4);
    // Esc goes back to what was typed.
    screen.typed("e king");
    screen.send(attnscope_screen::Msg::Key(search));
    screen.key(KeyCode::Esc);
    screen.key(KeyCode::Enter);
    assert_eq!(screen.app.scene().n_along(attnscope_screen::Axis::Query), 5);
}

#[test]
fn an_encoders_filter_of_heads_keeps_to_the_selected_grid() {
    let ids = Request::ids(vec![3, 5, 7, 5, 1]);
    let path = fixture("oracle/t5_v11/model");
    let mut screen = Screen::open(Some(path), ids, (120, 40), Depth::None);
    screen.typed("/decoder");
    let line = last_line(&mut screen);
    assert!(line.contains(" 0 of "), "{line}");
    screen.key(KeyCode::Enter);
    // The finder knows all grids.
    assert_eq!(screen.app.selection.head().to_string(), "decoder.L0H0");
}
