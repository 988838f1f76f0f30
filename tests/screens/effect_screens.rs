//! The Effect panel: values of every head by each measure, against the same values computed here.

use attnscope_compute::ops::Cpu;
use attnscope_prompt::Request;
use attnscope_run::input_of;
use attnscope_screen::{Depth, Panel};
use attnscope_studies::effect::{Asked, ShareOf, attribute};
use attnscope_worker::Measure;
use crossterm::event::KeyCode;
use testing::screen::Screen;

const TEXT: &str = "the old king gave a red apple . the old king gave";

fn effect(size: (u16, u16)) -> Screen {
    let mut screen = Screen::open(None, Request::text(TEXT), size, Depth::Truecolor);
    screen.app.shows_times = false;
    screen.typed("9");
    assert_eq!(screen.app.panel, Panel::Effect);
    screen
}

#[test]
fn values_are_those_of_the_measure_and_follow_the_selected_query() {
    let mut screen = effect((120, 40));
    for _ in 0..2 {
        let position_idx = screen.app.selection.query_idx;
        let scene = screen.app.scene();
        let shown = scene.effects().expect("effects").clone();
        let run = scene.run().expect("a run");
        let model = run.subject.model().expect("a model").clone();
        let asked = Asked {
            position_idx,
            token: shown.token.expect("a token"),
            against: None,
        };
        let input = input_of(&run.prompt);
        let found = attribute(&Cpu, &model, &input, asked, &|_, _| false, &|| false);
        let found = found.expect("shares");
        let heads = found
            .shares
            .iter()
            .filter(|share| share.of == ShareOf::Head);
        let expected: Vec<(String, f64)> = heads
            .map(|share| (share.place.to_string(), share.value))
            .collect();
        let values = shown
            .heads
            .iter()
            .map(|(place, value)| (place.to_string(), *value));
        assert_eq!(values.collect::<Vec<_>>(), expected);
        assert_eq!(shown.path, found.path);
        assert_eq!(shown.lens.len(), 3);
        screen.key(KeyCode::Left);
    }
    // The ranking goes from head to head, the largest first.
    screen.typed("g");
    let ranked = screen.app.scene().ranked_effects();
    assert!(
        ranked
            .windows(2)
            .all(|pair| pair[0].1.abs() >= pair[1].1.abs())
    );
    let at = |screen: &Screen| screen.app.scene().selected_place();
    let here = ranked
        .iter()
        .position(|(place, _)| *place == at(&screen))
        .expect("a head");
    screen.key(KeyCode::Down);
    assert_eq!(at(&screen), ranked[here + 1].0);
    // Enter opens its map.
    screen.key(KeyCode::Enter);
    assert_eq!(screen.app.panel, Panel::Head);
}

#[test]
fn every_measure_gives_every_head_a_value_and_space_drops_one() {
    let mut screen = effect((120, 40));
    for measure in [
        Measure::Attribution,
        Measure::Ablation,
        Measure::Contribution,
        Measure::Copying,
    ] {
        assert_eq!(screen.app.effect_view.measure, measure);
        let shown = screen.app.scene().effects().expect("effects");
        assert_eq!(shown.heads.len(), 8, "{measure:?}");
        assert!(!screen.app.scene().awaits_effects());
        assert!(screen.text().contains(measure.title()));
        screen.typed("n");
    }
    screen.typed(" ");
    let second = screen.app.runs.b.as_ref().expect("a what-if");
    let place = screen.app.scene().selected_place();
    assert_eq!(second.way.words(), format!("drop=zero@{place}"));
}

#[test]
fn the_panel_has_its_parts_at_every_size() {
    for size in [(80, 24), (120, 40), (200, 60)] {
        let mut screen = effect(size);
        let text = screen.text();
        for part in [
            "attribution",
            "lens",
            "path of the logit",
            "largest first",
            "embed",
        ] {
            assert!(text.contains(part), "{size:?} lacks {part}:\n{text}");
        }
    }
}

#[test]
fn a_model_without_a_language_model_head_shows_what_needs_none() {
    let path = testing::root().join("fixtures/oracle/bert_plain/model");
    let ids = Request::ids(vec![1, 2, 3, 4, 5]);
    let mut screen = Screen::open(Some(path), ids, (120, 40), Depth::Truecolor);
    screen.go(Panel::Effect);
    let text = screen.text();
    assert!(text.contains("contribution"), "{text}");
    assert!(!text.contains("e-308"), "{text}");
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").contains("no language-model head"), "{text}");
    let scene = screen.app.scene();
    assert_eq!(scene.effect_measure(), Measure::Contribution);
    let shown = scene.effects().expect("effects");
    assert!(shown.heads.iter().all(|(_, value)| *value > 0.0));
    screen.typed("n");
    assert_eq!(screen.app.scene().effect_measure(), Measure::Contribution);
    assert!(screen.text().contains("contribution needs none"));
}

#[test]
fn with_a_second_run_the_measured_side_is_named() {
    let mut screen = effect((120, 40));
    screen.key(KeyCode::Char('w'));
    screen.typed("temperature=2");
    screen.key(KeyCode::Enter);
    // B is shown, then the difference, then A. Effects have no difference: the header says that they are B's.
    for (nth, shown) in ["Showing B", "Showing B", "Showing A"]
        .into_iter()
        .enumerate()
    {
        let text = screen.text();
        assert!(text.contains(shown) && !text.contains("B − A"), "{text}");
        let is_difference = nth == 1;
        for title in ["attribution", "largest first", "lens"] {
            let named = format!("{title} · B");
            assert_eq!(text.contains(&named), is_difference, "{named}: {text}");
        }
        screen.typed("v");
    }
}
