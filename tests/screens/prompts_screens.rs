//! The Prompts panel: the scatter of all heads, the spread of the selected one, and the places that excite it.

use attnscope_checks::stats::{STATISTICS, Stat};
use attnscope_compute::ops::Cpu;
use attnscope_forward::Input;
use attnscope_prompt::{Request, Tokenizer, read_inputs};
use attnscope_run::input_of;
use attnscope_screen::{Depth, End, Panel};
use attnscope_studies::over_prompts::{Labels, OverPrompts};
use crossterm::event::KeyCode;
use testing::screen::Screen;

const TEXT: &str = "the old king gave a red apple . the old king gave";

/// The panel over the prompts of a fixture.
fn prompts(size: (u16, u16)) -> Screen {
    let directory = testing::root().join("fixtures/degenerate");
    let path = directory.join("prompts.jsonl");
    let set = read_inputs(&path, &Request::text("")).expect("a set");
    let mut screen = Screen::open(Some(directory), Request::text(TEXT), size, Depth::Truecolor);
    screen.app.shows_times = false;
    screen.app.give_prompts(set);
    screen.typed("P");
    assert_eq!(screen.app.panel, Panel::Prompts);
    screen
}

/// The same prompts, run here.
fn expected(screen: &Screen) -> OverPrompts {
    let run = screen.app.scene().run().expect("a run");
    let model = run.subject.model().expect("a model").clone();
    let form = Tokenizer::open(&model.checkpoint.tokenizer).expect("opens");
    let set = screen.app.prompts_view.given.clone().expect("a set");
    let inputs = set.iter().map(|(_, request)| {
        input_of(&attnscope_prompt::prepare(request, &form, model.spec.limits()).expect("a prompt"))
    });
    let inputs: Vec<Input> = inputs.collect();
    let mut over = OverPrompts::new(&model);
    let labels = Labels {
        source: &|id| form.label(id),
        target: &|id| form.label(id),
    };
    over.add(&Cpu, &model, &inputs, labels, &|| false)
        .expect("runs");
    over
}

#[test]
fn the_panel_shows_the_figures_of_all_prompts_for_the_selected_head() {
    let mut screen = prompts((120, 40));
    let expected = expected(&screen);
    assert_eq!(screen.app.prompts_view.end, End::Done);
    let found = screen.app.scene().over_prompts().expect("results").clone();
    assert_eq!((found.n_prompts, found.n_tokens), (24, expected.n_tokens));
    for (found, expected) in found.heads.iter().zip(&expected.heads) {
        assert_eq!(found.excited, expected.excited, "{}", found.place);
        for (idx, statistic) in STATISTICS.iter().enumerate() {
            let [a, b] = [found, expected].map(|head| head.spread(idx).figures());
            assert_eq!(a, b, "{} {}", found.place, statistic.id);
        }
    }
    // Two heads further, its line says so.
    screen.key(KeyCode::Right);
    screen.key(KeyCode::Right);
    let head = screen.app.scene().head_over_prompts().expect("a head");
    assert_eq!(head.place.to_string(), "L0H2");
    let mean = head.spread(Stat::EntropyRelative.idx()).mean();
    let best = &head.excited[0];
    let shown = [
        format!(
            "{}: mean {}",
            STATISTICS[0].title,
            &format!("{mean:.3}")[..4]
        ),
        format!("p {:.4}", best.probability),
        "24 prompts".to_owned(),
    ];
    let text = screen.text();
    for part in shown {
        assert!(text.contains(&part), "{part}:\n{text}");
    }
    // A copied row has the means over the prompts, not the values of the run on screen.
    screen.typed("yr");
    let copied = screen.copied.clone().expect("a row");
    let line = copied
        .lines()
        .find(|line| line.starts_with("entropy_relative\t"));
    let cell = line
        .and_then(|line| line.split('\t').nth(1))
        .expect("a mean");
    assert_eq!(cell.parse::<f64>().ok(), Some(mean));
}

#[test]
fn enter_runs_the_prompt_of_the_place_and_selects_its_tokens() {
    let mut screen = prompts((120, 40));
    screen.key(KeyCode::Right);
    screen.key(KeyCode::Down);
    let scene = screen.app.scene();
    let (nth, place) = scene.selected_excited().expect("a place");
    let (place, at) = (place.clone(), scene.selected_place());
    assert_eq!(nth, 1);
    let set = screen.app.prompts_view.given.clone().expect("a set");
    screen.key(KeyCode::Enter);
    assert_eq!(screen.app.panel, Panel::Head);
    let run = screen.app.scene().run().expect("a run");
    assert_eq!(run.source, set[place.prompt_idx].1.source);
    let selection = screen.app.selection;
    assert_eq!(screen.app.scene().selected_place(), at);
    assert_eq!(
        (selection.query_idx, selection.key_idx),
        (place.query_idx, place.key_idx)
    );
    // The pattern on screen has the value that the list gave.
    let detail = screen.app.scene().shown_detail().expect("the head").clone();
    let cells = &detail.pattern.finest().cells;
    let p = f64::from(cells[place.query_idx * detail.n_keys + place.key_idx]);
    assert!(
        (p - place.probability).abs() < 1e-6,
        "{p}, not {}",
        place.probability
    );
    // Back in the panel, the results are still there, and nothing runs again.
    screen.typed("P");
    assert_eq!(screen.app.prompts_view.end, End::Done);
    assert_eq!(screen.app.prompts_view.place_idx, 1);
}

#[test]
fn any_two_statistics_make_the_axes_and_a_click_selects_the_nearest_head() {
    let mut screen = prompts((120, 40));
    let axes = |screen: &Screen| {
        screen
            .app
            .scene()
            .scatter_axes()
            .map(|idx| STATISTICS[idx].id)
    };
    assert_eq!(axes(&screen), ["entropy_relative", "first_key_mass"]);
    screen.typed("s");
    assert_eq!(axes(&screen), ["first_key_mass", "entropy_relative"]);
    screen.typed("n");
    assert_eq!(axes(&screen), ["previous_mass", "entropy_relative"]);
    screen.typed("m");
    screen.typed("induction");
    screen.key(KeyCode::Enter);
    assert_eq!(screen.app.panel, Panel::Prompts);
    assert_eq!(axes(&screen), ["induction_mass", "entropy_relative"]);
    let text = screen.text();
    let title = Stat::InductionMass.statistic().title;
    assert!(text.contains(&format!("mean {title}")), "{text}");
    // The same statistic is never on both axes, and none of layers is on one.
    for _ in 0..2 * STATISTICS.len() {
        screen.typed("n");
        let [x, y] = screen.app.scene().scatter_axes();
        assert_ne!(x, y);
        assert!(STATISTICS[x].is_per_head() && STATISTICS[y].is_per_head());
    }
    // Wherever a head is drawn, a click selects a head with the same point.
    let frame = screen.frame();
    let letters: Vec<(u16, u16)> = (0..60)
        .flat_map(|x| (6..34).map(move |y| (x, y)))
        .filter(|at| frame[*at].bg != ratatui::style::Color::Reset)
        .collect();
    assert!(letters.len() > 2, "{letters:?}");
    for (x, y) in letters {
        screen.click(x, y);
        screen.point(x, y);
        let at = screen.app.scene().selected_place().to_string();
        assert!(
            screen
                .text()
                .lines()
                .last()
                .expect("a footer")
                .contains(&at),
            "{at}"
        );
    }
}

#[test]
fn without_a_file_the_texts_of_the_session_are_run_and_again_when_asked() {
    let mut screen = Screen::open(None, Request::text(TEXT), (80, 24), Depth::None);
    assert!(!screen.text().contains("P Prompts"));
    screen.typed("P");
    let ids = |screen: &Screen| {
        let query = screen.app.prompts_view.asked.clone().expect("a request");
        query
            .set
            .iter()
            .map(|(id, _)| id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&screen), ["1"]);
    assert_eq!(
        screen.app.scene().over_prompts().map(|over| over.n_prompts),
        Some(1)
    );
    screen.typed("e");
    screen.typed(" a");
    screen.key(KeyCode::Enter);
    screen.typed("e");
    screen.typed(" b");
    screen.key(KeyCode::Enter);
    assert_eq!(ids(&screen), ["1"], "only r runs them again");
    screen.typed("r");
    assert_eq!(ids(&screen), ["1", "2"]);
    assert_eq!(
        screen.app.scene().over_prompts().map(|over| over.n_prompts),
        Some(2)
    );
    assert!(
        screen.text().contains("2 prompts of this session"),
        "{}",
        screen.text()
    );
}

#[test]
fn the_panel_has_its_parts_at_every_size() {
    for size in [(80, 24), (120, 40), (200, 60)] {
        let mut screen = prompts(size);
        let text = screen.text();
        for part in [
            "heads over prompts",
            "24 prompts",
            "90 %",
            " in story-",
            "excites it",
            "→",
        ] {
            assert!(text.contains(part), "{size:?} lacks {part}:\n{text}");
        }
    }
}
