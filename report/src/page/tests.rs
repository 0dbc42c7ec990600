use super::*;
use crate::plan;
use crate::specimen;

fn claims() -> Vec<ClaimRow> {
    let row = |id: &str,
               source: &str,
               text: &str,
               reported: &str,
               accept: &str,
               measured: &str,
               verdict,
               reason: &str| ClaimRow {
        id: id.into(),
        source: source.into(),
        text: text.into(),
        host: "sim".into(),
        reported: reported.into(),
        accept: accept.into(),
        measured: measured.into(),
        verdict,
        reason: reason.into(),
    };
    use Verdict::{Differs, NotRun, Reproduced};
    vec![
        row(
            "becc.fig2.knee",
            "Fig. 2, section 2.1",
            "Throughput saturates at this window",
            "90 kB",
            "75 kB to 100 kB",
            "88 kB",
            Reproduced,
            "",
        ),
        row(
            "becc.fig10.becc",
            "Fig. 10, section 4.1.2",
            "BECC-TCP above 220 kB, on average",
            "30 Mbit/s",
            "26 to 36 Mbit/s",
            "34.6 Mbit/s",
            Reproduced,
            "",
        ),
        row(
            "becc.fig12.phase1",
            "Fig. 12",
            "Rate BECC sees while 20 Mbit/s of UDP share the line",
            "15 Mbit/s",
            "13 to 24 Mbit/s",
            "25.1 Mbit/s",
            Differs,
            "20 Mbit/s of UDP leave 22 Mbit/s of a 42.8 Mbit/s line; the paper's 15 Mbit/s need about 27 Mbit/s of UDP.",
        ),
        row(
            "becc.cost.input",
            "Section 4.2",
            "Operations in tcp_input() <per ACK>",
            "2 divisions",
            "2",
            "",
            NotRun,
            "needs a kernel",
        ),
    ]
}

fn report() -> Page {
    let mut sweep = Vec::new();
    for controller in ["reno", "becc"] {
        for window in [7, 14, 20, 26, 32, 40, 48, 52, 58, 70, 82] {
            sweep.extend([1, 2, 3].map(|seed| specimen::run("fig10", controller, window, 7600, seed)));
        }
    }
    let trace = ["reno", "becc"].map(|controller| specimen::run("trace", controller, 122, 7600, 1));
    let plans = plan::parse(include_str!("figures.toml"), "figures.toml").unwrap();
    let draw = |plan: &plan::Plan| {
        let runs = if plan.scenario == "fig10.toml" { &sweep[..] } else { &trace[..] };
        let mut shown = plan.draw(runs).unwrap();
        shown.command = format!("narrows run papers/kugimoto-1997-becc/{} --seeds 1..3", plan.scenario);
        shown
    };
    Page {
        title: "Congestion avoidance by estimating the available bandwidth (BECC)".into(),
        intro: "Kugimoto and Amagai, 1997. One TCP flow over a 45 Mbit/s line behind a 100 Mbit/s ring, in the simulator.\n\nA specimen, not a result.".into(),
        command: "narrows reproduce becc".into(),
        version: "0.1.0".into(),
        up: "../index.html".into(),
        claims: claims(),
        figures: plans.iter().map(draw).collect(),
        runs: sweep.iter().chain(&trace).map(Run::of).collect(),
    }
}

#[test]
fn the_page_carries_everything_and_loads_nothing() {
    let html = report().render();
    for expected in [
        "25.1 Mbit/s",
        "27 Mbit/s of UDP",
        "Resolved parameters",
        "fig10 on sim, 22 points, seeds 1–3",
        "MIT License",
    ] {
        assert!(html.contains(expected), "{expected}");
    }
    assert!(html.contains("tcp_input() &lt;per ACK&gt;"), "text is escaped");
    assert_eq!(html.matches("<noscript><svg").count(), 4, "every figure has its SVG");
    let outside = ["src=", "url(", "@import", "href=\"http", "fetch(", "XMLHttpRequest"];
    let found: Vec<_> = outside.iter().filter(|what| html.contains(**what)).collect();
    assert!(found.is_empty(), "{found:?}");
    assert!(html.contains("default-src 'none'"));
}

#[test]
fn a_run_in_real_time_says_on_its_page_how_late_it_was_and_what_to_know_of_it() {
    assert!(!report().render().contains("class=\"notes\""), "nothing to say of a simulation");
    let late = Quantiles { count: 9, p50: 4e-6, p99: 14e-6, max: 0.035, ..Quantiles::default() };
    let real =
        Outcome { seed: 3, lateness: Some(late), notes: vec!["spoilt: <1 s".into()], ..Outcome::default() };
    let html = Page { runs: vec![Run::of(&real)], ..Page::default() }.render();
    let said = "<li>seed 3: What was due was late by";
    assert!(
        html.contains(said) && html.contains("at most 35") && html.contains("; spoilt: &lt;1 s</li>"),
        "{html}"
    );
}

#[test]
fn data_cannot_break_out_of_its_script() {
    let figure = Figure { title: "</script><b>".into(), ..Figure::default() };
    let html = Page { figures: vec![Shown { figure, ..Shown::default() }], ..Page::default() }.render();
    assert!(!html.contains("</script><b>") && html.contains("\\u003c/script>"));
}

#[test]
fn many_numbers_come_back_to_a_ten_millionth() {
    let values: Vec<f64> = (0..50_000).map(|i| f64::from(i) * 8.7e-4 + f64::from(i % 7) * 1e-5).collect();
    let written = numbers(&values);
    let (unit, steps) = (written["unit"].as_f64().unwrap(), written["steps"].as_array().unwrap());
    let mut sum = 0;
    for (value, step) in values.iter().zip(steps) {
        sum += step.as_i64().unwrap();
        assert!((sum as f64 * unit - value).abs() <= 43.5e-7, "{value}");
    }
    assert!(written.to_string().len() < 5 * values.len());
    assert_eq!(numbers(&[0.1 + 0.2, -3.0]), json!([0.3, -3.0]), "few numbers are written out");
}

#[test]
fn seeds_are_named_in_ranges() {
    assert_eq!(seeds([1].into_iter()), "seed 1");
    assert_eq!(seeds([3, 1, 4, 5, 1].into_iter()), "seeds 1, 3–5");
}

#[test]
fn the_summary_counts_verdicts() {
    assert_eq!(Page { claims: claims(), ..Page::default() }.summary(), "2 reproduced, 1 differs, 1 not run");
}

#[test]
fn an_index_links_its_reports() {
    let entry = Entry {
        href: "becc/index.html".into(),
        title: "BECC".into(),
        about: "Kugimoto, 1997".into(),
        claims: claims(),
    };
    let html = Index { title: "Reports".into(), reports: vec![entry], ..Index::default() }.render();
    assert!(
        html.contains("href=\"becc/index.html\"")
            && html.contains("2 reproduced")
            && html.contains("1 differs")
    );
}

/// `cargo test -p narrows-report look -- --ignored` writes pages and figures to look at.
#[test]
#[ignore = "for eyes: writes specimen pages and figures to the temporary folder"]
fn look() {
    let folder = std::env::temp_dir().join("narrows-specimen");
    let mut page = report();
    let write = |name: &str, text: String| crate::output::write(folder.join(name), text.as_bytes()).unwrap();
    let axis = |label: &str, log| Axis { label: label.into(), range: None, log };
    let points: Vec<(f64, f64)> =
        (0..18).map(|i| (1.5e3 * 1.4f64.powi(i), 41.0 - 40.0 / f64::from(i + 1))).collect();
    let curve = Layer {
        label: "seeds 1–20".into(),
        style: crate::figure::Style::Curve(crate::figure::Mark::Diamond),
        ink: crate::figure::Ink::Green,
        right_axis: false,
        spread: Some(points.iter().map(|p| (p.1 * 0.7, p.1 * 1.2)).collect()),
        points,
    };
    let figure = Figure {
        id: "log".into(),
        title: "Logarithmic".into(),
        x: axis("Window (byte)", true),
        y: axis("Rate (Mbit/s)", true),
        layers: vec![curve],
        ..Figure::default()
    };
    page.figures.push(Shown { figure, ..Shown::default() });
    write("report.html", page.render());
    page.figures.iter().for_each(|f| write(&format!("{}.svg", f.figure.id), svg::render(&f.figure).unwrap()));
    let runs = [specimen::run("trace", "reno", 122, 7600, 1)];
    let title = "trace".to_owned();
    let figures = crate::default_figures(&runs);
    write(
        "run.html",
        Page { title, figures, runs: runs.iter().map(Run::of).collect(), ..Page::default() }.render(),
    );
    let entry = Entry {
        href: "report.html".into(),
        title: page.title,
        about: "Kugimoto, 1997".into(),
        claims: claims(),
    };
    write(
        "index.html",
        Index { title: "Narrows: reproduced papers".into(), reports: vec![entry], ..Index::default() }
            .render(),
    );
    crate::output::write_with(folder.join("series.parquet"), |out| {
        crate::table::Table::Series.parquet(&runs, out)
    })
    .unwrap();
    crate::output::write_with(folder.join("series.csv"), |out| crate::table::Table::Series.csv(&runs, out))
        .unwrap();
    crate::output::write_with(folder.join("flows.parquet"), |out| {
        crate::table::Table::Flows.parquet(&runs, out)
    })
    .unwrap();
}
