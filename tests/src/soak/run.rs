//! One soak from its start to its end.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::FutureExt;
use tokio::time::{Instant, sleep, sleep_until};

use super::compare;
use super::judge::Judge;
use super::levels::Lives;
use super::options::Settings;
use super::plan::{Fault, Plan, Planned};
use super::report::{Guarantees, Report};
use super::world::World;
use super::writer::Writer;
use crate::history::EtcdLog;

/// For everybody to hold what etcd holds, once all has healed. A stream that fell silent is noticed after seconds, a
/// catch-up may take as long again and again, and backoffs are capped at half a minute.
const CONVERGE: Duration = Duration::from_secs(60);
/// Between two comparisons.
const AGAIN: Duration = Duration::from_millis(500);
/// Breaches that are told.
const TOLD_MAX: usize = 20;

/// A soak under way.
struct Soak<'a> {
    settings: &'a Settings,
    began: Instant,
    plan: Plan,
    /// What has been begun and must be ended, and when.
    broken: Vec<(Instant, Fault)>,
    lives: Lives,
    report: Report,
}

/// What it works on; made once etcd is filled.
struct Scene {
    world: World,
    log: EtcdLog,
    writer: Writer,
    judge: Judge,
}

/// Runs it, and says what came of it.
pub async fn run(settings: &Settings) -> Report {
    let mut soak = Soak {
        settings,
        began: Instant::now(),
        plan: Plan::new(settings),
        broken: Vec::new(),
        lives: Lives::default(),
        report: Report { seed: settings.seed, ..Report::default() },
    };
    soak.say(&format!("seed {}, {} times of faults", settings.seed, settings.rounds));
    let world = match World::start(settings).await {
        Ok(world) => world,
        Err(error) => {
            soak.report.failure = Some(format!("{error:#}"));
            return soak.report;
        }
    };
    soak.on(world).await
}

// === impl Soak ===

impl Soak<'_> {
    async fn on(mut self, world: World) -> Report {
        let mut scene = match Scene::start(world, self.settings).await {
            Ok(scene) => scene,
            Err(error) => {
                self.report.failure = Some(format!("{error:#}"));
                return self.report;
            }
        };
        // A panic is how the parts of the tests say that something did not happen in time.
        let ended = AssertUnwindSafe(self.rounds(&mut scene)).catch_unwind().await;
        self.report.failure = match ended {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("{error:#}")),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                Some(text.or_else(|| panic.downcast_ref().copied()).unwrap_or("a panic").to_owned())
            }
        };
        self.closed(scene)
    }

    /// Times of faults, each followed by a quiet time.
    async fn rounds(&mut self, scene: &mut Scene) -> Result<()> {
        // The levels after warm-up are those of this quiet time, which changes without faults precede.
        scene.writer.resume();
        sleep(self.settings.busy / 4).await;
        self.quiet(scene).await?;
        for _ in 0..self.settings.rounds {
            self.busy(scene).await?;
            self.quiet(scene).await?;
        }
        Ok(())
    }

    async fn busy(&mut self, scene: &mut Scene) -> Result<()> {
        scene.writer.resume();
        let end = Instant::now() + self.settings.busy;
        let mut planned = self.plan.planned();
        let mut due = Instant::now() + planned.after;
        loop {
            self.broken.sort_by_key(|(until, _)| *until);
            let heals = self.broken.first().map_or(end, |(until, _)| *until);
            sleep_until(end.min(due).min(heals)).await;
            scene.world.still_runs(&self.broken)?;
            let now = Instant::now();
            if now >= end {
                return Ok(());
            }
            if now >= heals {
                let (_, fault) = self.broken.remove(0);
                scene.world.end(&fault).await?;
            }
            if now >= due {
                self.breaks(scene, &planned).await?;
                planned = self.plan.planned();
                due += planned.after;
            }
        }
    }

    async fn breaks(&mut self, scene: &mut Scene, planned: &Planned) -> Result<()> {
        self.say(&planned.to_string());
        *self.report.faults.entry(planned.fault.kind()).or_default() += 1;
        scene.world.begin(&planned.fault, &scene.log).await?;
        if !planned.lasts.is_zero() {
            self.broken.push((Instant::now() + planned.lasts, planned.fault));
        }
        Ok(())
    }

    /// Everything heals, nothing is written, and everybody is compared with etcd.
    async fn quiet(&mut self, scene: &mut Scene) -> Result<()> {
        let began = Instant::now();
        for (_, fault) in std::mem::take(&mut self.broken) {
            scene.world.end(&fault).await?;
        }
        self.plan.healed();
        scene.writer.quiet().await;
        scene.world.etcd.ready().await;
        scene.world.still_runs(&[])?;
        let revision = scene.log.settle(CONVERGE).await?;
        let differences = self.converged(scene, revision).await?;
        let took = began.elapsed().as_secs_f64();
        self.report.quiet_compares += 1;
        self.report.slowest_compare_seconds =
            self.report.slowest_compare_seconds.max((took * 10.0).round() / 10.0);
        self.say(&format!(
            "quiet: {} changes, all at revision {revision} after {took:.1} s, {} differences",
            scene.writer.written(),
            differences.len()
        ));
        differences.iter().for_each(|it| self.say(it));
        self.report.differences.extend(differences);
        scene.judge.end(&scene.log);
        sleep(self.settings.quiet.saturating_sub(began.elapsed())).await;
        let above = self.lives.look(&scene.world).await?;
        above.iter().for_each(|it| self.say(it));
        self.report.levels_above.extend(above);
        // What clients follow must go on where it stopped.
        scene.judge.cut();
        if !self.report.differences.is_empty() || scene.judge.violations() > 0 {
            bail!("what was found stays as it is, to be looked at");
        }
        Ok(())
    }

    /// What still differs when all were equal, or the deadline has passed.
    async fn converged(&self, scene: &mut Scene, revision: u64) -> Result<Vec<String>> {
        let deadline = Instant::now() + CONVERGE;
        loop {
            let mut found = compare::differences(&scene.world, &scene.log, revision).await?;
            scene.judge.judge(&scene.log);
            found.extend(scene.judge.lacking(&scene.log));
            if found.is_empty() || Instant::now() >= deadline {
                return Ok(found);
            }
            sleep(AGAIN).await;
        }
    }

    fn closed(mut self, mut scene: Scene) -> Report {
        let breaches = scene.judge.breaches();
        self.report.guarantees = Guarantees {
            checked: scene.judge.checks(),
            violated: scene.judge.violations(),
            breaches: breaches.iter().take(TOLD_MAX).map(ToString::to_string).collect(),
        };
        self.report.changes = scene.writer.written();
        self.report.revisions = scene.log.look(|history| history.head() - history.begun());
        self.report.minutes = (self.began.elapsed().as_secs_f64() / 60.0 * 100.0).round() / 100.0;
        self.report.levels = self.lives.all().into_iter().cloned().collect();
        self.report.passed = self.report.is_clean();
        if !self.report.passed {
            if let Err(error) = scene.world.write_logs() {
                self.say(&format!("{error:#}"));
            }
            let folder = scene.world.keep();
            self.say(&format!("the folder with all logs stays: {}", folder.display()));
            self.report.folder = Some(folder);
        }
        self.report
    }

    fn say(&self, what: &str) {
        eprintln!("soak: {:7.1} s  {what}", self.began.elapsed().as_secs_f64());
    }
}

// === impl Scene ===

impl Scene {
    async fn start(world: World, settings: &Settings) -> Result<Self> {
        let endpoints = world.etcd.endpoints();
        let writer = Writer::start(endpoints.clone(), settings.seed, settings.rate, settings.keys).await?;
        let log = EtcdLog::start(endpoints).await.context("begin the log of etcd")?;
        for node in &world.nodes {
            node.ready().await;
        }
        let judge = Judge::start(&world, settings).await;
        Ok(Self { world, log, writer, judge })
    }
}
