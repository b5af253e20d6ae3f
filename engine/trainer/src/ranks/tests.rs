//! Runs over several cards: what they learn is what one device learns that takes the same rows one after the other.

use super::*;
use crate::step::Learner;
use crate::testing::*;
use protocol::Code;
use protocol::plan::{Method, Recompute};

fn nobody_breaks() -> Broken {
    Arc::new(|problem| panic!("{problem}"))
}

/// A run of made-up rows over so many cards; one card takes as many micro-batches as there would be cards.
fn run(method: &Method, cards: u32, steps: u64) -> (Plan, Arc<Rows>) {
    let rows = Rows::made_up(11, 13, 61);
    let mut plan = plan_of(&odd_config(true), method, &rows, steps, 8);
    // The last step is a partial one: some ranks have no row of it.
    plan.run.rows_total -= 6;
    plan.optimizer.learning_rate = 1e-2;
    plan.devices = (0..cards).map(|card| format!("cuda:{card}")).collect();
    plan.strategy.dp = cards;
    let mut plan = arranged(plan, 2, Recompute::None);
    plan.memory.devices = Vec::new();
    (plan, Arc::new(rows))
}

/// Loss and gradient norm of every step, and the weights at the end.
fn learnt(method: &Method, cards: u32, steps: u64) -> (Vec<(f64, f64)>, Vec<Vec<f32>>) {
    let (plan, rows) = run(method, cards, steps);
    let shared: SharedRows = rows.clone();
    let (mut ranks, _) = Ranks::open(&plan, None, &shared, &nobody_breaks()).unwrap();
    let measured = (0..steps).map(|_| match ranks.step(rows.as_ref()).unwrap() {
        StepOutcome::Done(done) => (done.measured.loss, done.measured.grad_norm),
        StepOutcome::Skipped { problem, .. } => panic!("{problem}"),
    });
    let measured = measured.collect();
    let rank = ranks.first();
    let weights = rank.model.parameters().iter().map(|p| rank.stream().to_host(&p.weight)).collect();
    assert_eq!(ranks.peaks().len(), cards as usize);
    (measured, weights)
}

#[test]
fn cards_that_share_the_rows_learn_what_one_learns_that_takes_them_all() {
    if !cards_are_there() {
        return;
    }
    for method in [Method::Full, lora(3, 0.3, &["q_proj", "down_proj"])] {
        let (alone, weights) = learnt(&method, 1, 4);
        for cards in [2, 4] {
            let (shared, theirs) = learnt(&method, cards, 4);
            for (step, (a, b)) in alone.iter().zip(&shared).enumerate() {
                let near = (a.0 - b.0).abs() < 1e-5 && (a.1 / b.1 - 1.0).abs() < 1e-4;
                assert!(near, "{cards} cards, step {step}: {b:?}, one card {a:?}");
            }
            let far = weights.iter().zip(&theirs).map(|(a, b)| distance(a, b)).fold(0.0, f32::max);
            assert!(far < 1e-4, "{cards} cards: weights differ by {far}");
            assert_eq!(learnt(&method, cards, 4), (shared, theirs), "{cards} cards, once more");
        }
    }
}

#[test]
fn a_card_that_is_not_there_is_refused_and_nobody_waits() {
    if !cards_are_there() {
        return;
    }
    let (mut plan, rows) = run(&Method::Full, 2, 1);
    plan.devices[1] = format!("cuda:{}", FAILING_CARD + 1);
    let shared: SharedRows = rows;
    let problem = Ranks::open(&plan, None, &shared, &nobody_breaks()).err().unwrap();
    assert_eq!(problem.code, Code::DeviceUnavailable);
    assert!(problem.what.contains("cuda:5") && problem.remedy.contains("anneal doctor"), "{problem:?}");
}

/// Every allocation from opening the device to the end of the first step, one after the other.
#[test]
fn an_allocation_that_fails_is_out_of_memory_wherever_it_is() {
    use virtual_gpu::Fault;
    let is_real = std::env::var_os("ANNEAL_GPU").is_some_and(|wanted| wanted == "real");
    if !cards_are_there() || is_real {
        return;
    }
    let lines = run(&Method::Full, 1, 1).0.memory.arena.len();
    let attempt = || {
        let (mut plan, rows) = run(&Method::Full, 1, 1);
        plan.devices = vec![format!("cuda:{FAILING_CARD}")];
        let shared: SharedRows = rows.clone();
        let (mut ranks, _) = Ranks::open(&plan, None, &shared, &nobody_breaks())?;
        ranks.step(rows.as_ref())
    };
    assert!(attempt().is_ok());
    let mut failed = 0;
    loop {
        let allocation = failed as u64 + 1;
        virtual_gpu::control().arm(Fault::OutOfMemory { device: FAILING_CARD, allocation });
        let outcome = catch_unwind(AssertUnwindSafe(attempt));
        virtual_gpu::control().clear_faults();
        let problem = match outcome {
            Ok(Ok(_)) => break,
            Ok(Err(problem)) => problem,
            Err(panic) => failure::of_panic(&*panic),
        };
        let is_named = problem.code == Code::OutOfMemory || problem.why.contains("OUT_OF_MEMORY");
        assert!(is_named, "allocation {allocation}: {problem:?}");
        failed += 1;
    }
    assert!(failed > lines, "{failed} allocations were met, the plan alone has {lines}");
    assert!(attempt().is_ok());
}
