//! The stories of the demos on screen: their pages, what moves them, and what an export holds.

use attnscope::bundles;
use attnscope::cli::demo::pages_of;
use attnscope_checkpoint::Opening;
use attnscope_compute::ops::Device;
use attnscope_prompt::Request;
use attnscope_report::{Page, Picture};
use attnscope_screen::{Depth, Export, Msg, Panel, StoryView};
use crossterm::event::KeyCode;
use testing::screen::Screen;

fn pages(name: &str) -> Vec<Page> {
    let compute = Device::Cpu.open().expect("a processor");
    pages_of(name, &compute).expect("a story").expect("pages")
}

/// A screen on which a demo tells its story.
fn told(name: &str, size: (u16, u16)) -> Screen {
    let opening = Opening {
        bundle: bundles::named("degenerate"),
        set: vec![("softmax_axis".to_owned(), "queries".to_owned())],
        ..Opening::default()
    };
    let request = Request::text("the king took a quiet story in the night .");
    let mut screen = Screen::open(opening, request, size, Depth::Truecolor);
    screen.app.shows_times = false;
    screen.app.story = Some(StoryView::default());
    screen.go(Panel::Story);
    assert!(screen.text().contains("computing the pages"));
    screen.send(Msg::Story(Ok(pages(name))));
    screen
}

#[test]
fn every_page_is_as_it_was() {
    for name in ["degenerate", "collapse"] {
        let all = pages(name);
        for (width, height) in [(80, 24), (120, 40)] {
            let mut screen = told(name, (width, height));
            for (nth, page) in all.iter().enumerate() {
                let text = screen.text();
                let title = format!("{} of {} · {}", nth + 1, all.len(), page.title);
                assert!(text.contains(&title), "{title}: {text}");
                // Figures of runs differ in their last digits by processor; those that were stored do not.
                let shown = screen.picture();
                insta::assert_snapshot!(format!("{name}_{}_{width}x{height}", nth + 1), shown);
                screen.key(KeyCode::Right);
            }
            assert!(screen.text().contains(&format!("{} of", all.len())));
            screen.key(KeyCode::Left);
            assert!(screen.text().contains(&format!("{} of", all.len() - 1)));
        }
    }
}

#[test]
fn every_page_of_every_demo_has_room_for_its_picture() {
    for name in [
        "rescale",
        "variance",
        "alignment",
        "effect",
        "collapse",
        "degenerate",
    ] {
        let all = pages(name);
        for size in [(80, 24), (120, 40), (200, 60)] {
            let mut screen = told(name, size);
            for (nth, page) in all.iter().enumerate() {
                let text = screen.text();
                let title = format!("{} of {} · {}", nth + 1, all.len(), page.title);
                assert!(text.contains(&title), "{title}: {text}");
                for fault in ["no room for", "no finite value", "NaN"] {
                    assert!(!text.contains(fault), "{name}, {size:?}: {fault}: {text}");
                }
                // A banner about the other panels is no part of a story.
                assert!(!text.contains("WHAT IF"), "{text}");
                screen.key(KeyCode::Right);
            }
        }
    }
}

#[test]
fn text_that_is_longer_than_the_screen_moves_and_stops_at_its_ends() {
    let mut screen = told("degenerate", (80, 24));
    screen.key(KeyCode::Right);
    let top = screen.text();
    assert!(top.contains("↑↓ more") && top.contains("wider: 3"));
    screen.key(KeyCode::End);
    let end = screen.text();
    // The last word is followed by nothing, and guessed as what begins a sentence.
    assert!(end.contains(" it 0.") && end != top);
    screen.key(KeyCode::Down);
    assert_eq!(screen.text(), end);
    screen.key(KeyCode::Home);
    assert_eq!(screen.text(), top);
}

#[test]
fn maps_are_those_of_the_selected_head() {
    let mut screen = told("degenerate", (120, 40));
    screen.typed("ll");
    let first = screen.picture();
    assert!(first.contains("over queries · L0H0"));
    screen.typed("]}");
    let other = screen.picture();
    assert!(other.contains("over queries · L1H1") && other.contains("over keys · L1H1"));
    assert_ne!(first, other);
}

#[test]
fn a_click_turns_the_page_and_the_tabs_stay_where_they_are_hit() {
    let mut screen = told("degenerate", (80, 24));
    screen.click(70, 10);
    assert!(screen.text().contains(" 2 of 7 "));
    screen.click(5, 10);
    assert!(screen.text().contains(" 1 of 7 "));
    let text = screen.text();
    let tabs = text.lines().nth(1).expect("tabs");
    let at = tabs.split("6 ").next().expect("a tab").chars().count();
    screen.click(at as u16, 1);
    assert_eq!(screen.app.panel, Panel::Checks);
    screen.typed("S");
    assert_eq!(screen.app.panel, Panel::Story);
}

#[test]
fn an_export_holds_what_the_page_shows() {
    let all = pages("degenerate");
    let mut screen = told("degenerate", (120, 40));
    for page in &all {
        let export = Export::of(&screen.app, false).expect("an export");
        let mut table = csv::Reader::from_reader(export.csv.as_slice());
        let rows: Vec<csv::StringRecord> = table.records().map(|row| row.expect("a row")).collect();
        let n_expected = match &page.picture {
            Picture::Charts(charts) => {
                let series = charts.iter().flat_map(|chart| &chart.series);
                series.map(|series| series.points.len()).sum()
            }
            Picture::Table(table) => table.titles.len() * table.rows.len(),
            Picture::Maps(maps) => {
                let cells = |map: &attnscope_report::Map| {
                    let sheet = map.sheet(0, 0).expect("a sheet");
                    let n = map.row_labels.len() + map.column_labels.len();
                    sheet.values.finest().cells.len() + n
                };
                maps.iter().map(cells).sum()
            }
            Picture::Passages(passages) => passages.len(),
        };
        assert_eq!(rows.len(), n_expected, "{}", page.title);
        assert!(rows.iter().all(|row| &row[1] == page.title));
        screen.key(KeyCode::Right);
    }
}

#[test]
fn without_a_story_there_is_no_tab_and_the_key_says_why() {
    let opening = Opening {
        bundle: bundles::named("healthy"),
        ..Opening::default()
    };
    let request = Request::text("the king took a quiet story .");
    let mut screen = Screen::open(opening, request, (120, 40), Depth::Truecolor);
    assert!(!screen.text().contains("S Story"));
    screen.typed("S");
    assert!(screen.text().contains("attnscope demo collapse"));
    assert_eq!(screen.app.panel, Panel::Overview);
    for _ in 0..10 {
        screen.key(KeyCode::Tab);
    }
    assert_eq!(screen.app.panel, Panel::Overview);
}

#[test]
fn a_map_of_a_head_leaves_blank_what_its_mask_hides() {
    let mut screen = told("effect", (120, 40));
    let text = screen.text();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains('▀')).collect();
    let n_cells = |line: &str| line.matches('▀').count();
    let (first, last) = (n_cells(lines[0]), n_cells(lines[lines.len() - 1]));
    assert!(4 * first < last, "{first} and {last} cells:\n{text}");
}
