//! One thread a kernel owns its guest and runs the scenarios that tests ask for, in turn.
use crate::calls::Calls;
use crate::guest::{Equipment, Guest};
use crate::{Kernel, Result, machine, target};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The longest that a scenario may take, on a loaded machine under emulation.
pub const LIMIT: Duration = Duration::from_secs(300);

struct Request {
    scenario: String,
    answer: Sender<Result<String>>,
}

/// Runs `scenarios/<scenario>.sh` in a guest with `kernel`, booting it if none runs yet.
///
/// # Panics
/// With the scenario's transcript when it fails: this is the body of a test.
pub fn run(kernel: Kernel, scenario: &str) {
    let start = Instant::now();
    let (answer, outcome) = channel();
    let request = Request { scenario: scenario.to_owned(), answer };
    let sent = runner(kernel).lock().unwrap_or_else(PoisonError::into_inner).send(request);
    assert!(sent.is_ok(), "the thread that owns the guest ended");
    match outcome.recv() {
        Ok(Ok(transcript)) => {
            println!("{transcript}passed in {:.1} s", start.elapsed().as_secs_f32());
        }
        Ok(Err(error)) => panic!("{kernel:?} {scenario}: {error}"),
        Err(_) => panic!("{kernel:?} {scenario}: the thread that owns the guest ended"),
    }
}

fn runner(kernel: Kernel) -> &'static Mutex<Sender<Request>> {
    static BOOKWORM: OnceLock<Mutex<Sender<Request>>> = OnceLock::new();
    static NEWEST: OnceLock<Mutex<Sender<Request>>> = OnceLock::new();
    let place = match kernel {
        Kernel::Bookworm => &BOOKWORM,
        Kernel::Newest => &NEWEST,
    };
    place.get_or_init(|| {
        let (requests, inbox) = channel();
        // Lives as long as the process: the programs it starts are killed when it ends.
        std::thread::spawn(move || serve(kernel, &inbox));
        Mutex::new(requests)
    })
}

fn serve(kernel: Kernel, inbox: &Receiver<Request>) {
    let mut guest = None;
    for request in inbox {
        let outcome = scenario(kernel, &mut guest, &request.scenario);
        // A test that stopped waiting has no use for the answer.
        let _unheard = request.answer.send(outcome);
    }
}

fn scenario(kernel: Kernel, guest: &mut Option<Guest>, name: &str) -> Result<String> {
    machine::prepare()?;
    // Built before the clock of a scenario runs.
    target::program()?;
    let running = match guest {
        Some(running) => running,
        None => guest.insert(Guest::boot(kernel, &Equipment::default())?),
    };
    let mut calls = Calls::new()?;
    match running.scenario(&format!("scenarios/{name}"), LIMIT, &mut calls) {
        Ok(outcome) if outcome.code == 0 => Ok(outcome.transcript),
        Ok(outcome) => Err(format!(
            "exit code {}\n{}target: {}",
            outcome.code,
            outcome.transcript,
            calls.said()
        )
        .into()),
        Err(error) => {
            // The next scenario gets a new machine.
            *guest = None;
            Err(format!("{error}\ntarget: {}", calls.said()).into())
        }
    }
}
