//! Set Features and Get Features (Base 2.1 sections 5.1.25 and 5.1.11).

use nvme::feature::{
    GetFeatures, HostBehavior, NumberOfQueues, Select, SetFeatures, Timestamp, bits, capability,
    fid,
};
use nvme::identify::NSID_ALL;
use nvme::log::{FeatureEffects, FeatureEffectsLog, Smart};
use nvme::sqe::Sqe;
use nvme::status::Status;
use stdx::num::{low8, low16, u32_of};
use zerocopy::{FromBytes, IntoBytes};

use super::{Fault, Outcome, prepare, window};
use crate::controller::{Controller, Features, Kind, State, granted};
use crate::limits::{IO_QUEUES_MAX, KEEP_ALIVE_MS_MAX};
use crate::persistent_event::Happened;
use crate::reservation::NoticeMask;

const NANOS_PER_MS: u64 = 1_000_000;

/// What a feature is: its scope, and whether it can be changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Controller,
    ControllerFixed,
    Namespace,
}

/// The features of I/O controllers.
pub(crate) const IO: [(u8, Class); 15] = [
    (fid::ARBITRATION, Class::Controller),
    (fid::POWER_MANAGEMENT, Class::Controller),
    (fid::TEMPERATURE_THRESHOLD, Class::Controller),
    (fid::ERROR_RECOVERY, Class::Namespace),
    (fid::VOLATILE_WRITE_CACHE, Class::ControllerFixed),
    (fid::NUMBER_OF_QUEUES, Class::Controller),
    (fid::WRITE_ATOMICITY, Class::Controller),
    (fid::ASYNC_EVENT, Class::Controller),
    (fid::TIMESTAMP, Class::Controller),
    (fid::KEEP_ALIVE_TIMER, Class::Controller),
    (fid::HOST_BEHAVIOR, Class::Controller),
    (fid::HOST_IDENTIFIER, Class::ControllerFixed),
    (fid::RESERVATION_NOTIFICATION_MASK, Class::Namespace),
    (fid::RESERVATION_PERSISTENCE, Class::Namespace),
    (fid::COMMAND_SET_PROFILE, Class::ControllerFixed),
];

/// The features of discovery controllers (section 3.1.3.3.3).
pub(crate) const DISCOVERY: [(u8, Class); 2] =
    [(fid::ASYNC_EVENT, Class::Controller), (fid::KEEP_ALIVE_TIMER, Class::Controller)];

/// Feature Identifiers Supported and Effects (12h).
pub(super) fn feature_effects(kind: Kind) -> FeatureEffectsLog {
    let table = match kind {
        Kind::Io => IO.as_slice(),
        Kind::Discovery => DISCOVERY.as_slice(),
    };
    let mut page = FeatureEffectsLog::new(&[]);
    for &(fid, class) in table {
        let scope = match class {
            Class::Controller | Class::ControllerFixed => FeatureEffects::SCOPE_CONTROLLER,
            Class::Namespace => FeatureEffects::SCOPE_NAMESPACE,
        };
        page.fids[usize::from(fid)] = (scope | FeatureEffects::SUPPORTED).into();
    }
    page
}

impl Controller {
    /// Refuses a feature this controller does not have.
    fn class(&self, feature: u8) -> Result<Class, Fault> {
        let table = match self.kind() {
            Kind::Io => IO.as_slice(),
            Kind::Discovery => DISCOVERY.as_slice(),
        };
        let found = table.iter().find(|(fid, _)| *fid == feature);
        found.map(|&(_, class)| class).ok_or(Fault::field(10, 0))
    }

    pub(super) fn set_features(&self, sqe: &Sqe, data: &[u8]) -> Result<Outcome, Fault> {
        let command = SetFeatures::parse(sqe)?;
        let class = self.class(command.fid)?;
        if command.uuid_index != 0 {
            return Err(Fault::field(14, 0));
        }
        if command.save {
            return Err(Fault::at(Status::FEATURE_NOT_SAVEABLE, 10, 31));
        }
        match class {
            Class::Namespace => return self.set_of_namespace(&command),
            // The specification gives this status only for a namespace the command names.
            _ if !matches!(command.nsid, 0 | NSID_ALL) => {
                return Err(Fault::at(Status::FEATURE_NOT_NAMESPACE_SPECIFIC, 1, 0));
            }
            _ => {}
        }
        match command.fid {
            fid::TEMPERATURE_THRESHOLD => return self.set_temperature_threshold(command.cdw11),
            fid::ASYNC_EVENT => return self.configure_events(command.cdw11),
            _ => {}
        }
        let now = self.now();
        let mut state = self.lock();
        let features = &mut state.features;
        let value = command.cdw11;
        match command.fid {
            fid::ARBITRATION => features.arbitration = checked(value, 0xffff_ff07)?,
            // Power state 0 is the only one (NPSS 0).
            fid::POWER_MANAGEMENT => features.power = checked(value, 0xe0)?,
            fid::NUMBER_OF_QUEUES => return set_number_of_queues(features, value),
            fid::WRITE_ATOMICITY => {
                features.write_atomicity = checked(value, bits::DISABLE_NORMAL)?;
            }
            fid::TIMESTAMP => {
                let new = typed::<Timestamp>(data)?;
                let previous = features.timestamp(now);
                features.set_timestamp(new, now);
                drop(state);
                self.timestamp_changed(previous, now);
            }
            fid::KEEP_ALIVE_TIMER if value > KEEP_ALIVE_MS_MAX => {
                return Err(Fault::at(Status::KEEP_ALIVE_TIMEOUT_INVALID, 11, 0));
            }
            fid::KEEP_ALIVE_TIMER => features.kato = granted(value),
            fid::HOST_BEHAVIOR => set_host_behavior(&mut state, typed::<HostBehavior>(data)?)?,
            // Section 5.1.25.1.28: over Fabrics, Connect has set it for good.
            fid::HOST_IDENTIFIER => return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr().into()),
            // The one value there is may be set again.
            fid::VOLATILE_WRITE_CACHE if value == bits::WRITE_CACHE_ENABLE => {}
            fid::COMMAND_SET_PROFILE if value == 0 => {}
            _ => return Err(Fault::at(Status::FEATURE_NOT_CHANGEABLE, 10, 0)),
        }
        Ok(Outcome::DONE)
    }

    fn timestamp_changed(&self, previous: Timestamp, now: u64) {
        let started = self.target().map_or(now, |target| target.started());
        let since_start_ms = now.saturating_sub(started) / NANOS_PER_MS;
        self.record(Happened::TimestampChange { previous, since_start_ms });
    }

    /// Sets a feature of one namespace, or (NSID FFFFFFFFh) of all.
    fn set_of_namespace(&self, command: &SetFeatures) -> Result<Outcome, Fault> {
        let view = self.view();
        let targets: Vec<_> = match command.nsid {
            NSID_ALL => view.iter().cloned().collect(),
            nsid => vec![self.active(nsid)?],
        };
        targets.iter().try_for_each(|namespace| self.permit_namespace(namespace))?;
        let value = command.cdw11;
        match command.fid {
            fid::ERROR_RECOVERY => {
                // DULBE cannot be enabled: deallocated blocks read as zeroes (NSFEAT bit 2 is 0).
                let tler = checked(value, 0xffff)?;
                let mut state = self.lock();
                let all = targets.iter().map(|namespace| (namespace.nsid, tler));
                state.features.error_recovery.extend(all);
            }
            fid::RESERVATION_NOTIFICATION_MASK => {
                let mask = NoticeMask::from_cdw11(value).ok_or(Fault::field(11, 0))?;
                let mut state = self.lock();
                let all = targets.iter().map(|namespace| (namespace.nsid, mask));
                state.features.reservation_masks.extend(all);
            }
            _ => {
                let persist = checked(value, bits::PTPL)? != 0;
                for namespace in &targets {
                    let set = namespace.reservation.set_persist(persist);
                    set.map_err(|_| Fault::field(11, 0))?;
                }
                return Ok(Outcome::KeepReservations { nsid: command.nsid });
            }
        }
        Ok(Outcome::DONE)
    }

    /// Asynchronous Event Configuration (0Bh). What the host asks for now, and what is so already, it
    /// is told at once (section 5.1.25.1.5): it may have connected long after that began.
    fn configure_events(&self, value: u32) -> Result<Outcome, Fault> {
        let value = checked(value, crate::describe::event_configuration(self.kind()))?;
        let mut state = self.lock();
        let features = &mut state.features;
        let before = core::mem::replace(&mut features.async_event_configuration, value);
        state.events.configure(value);
        Self::wake_if_due(state);
        self.tell_warnings(low8((value & !before).into()));
        Ok(Outcome::DONE)
    }

    /// Temperature Threshold (04h). There is the composite temperature, and no sensor beside it.
    fn set_temperature_threshold(&self, value: u32) -> Result<Outcome, Fault> {
        let (select, under) = temperature_select(value)?;
        if !matches!(select, 0 | 0xf) {
            return Err(Fault::field(11, 16));
        }
        let threshold = low16(value.into());
        let mut state = self.lock();
        if under {
            state.features.temperature_under = threshold;
        } else {
            state.features.temperature_over = threshold;
        }
        drop(state);
        self.tell_warnings(Smart::WARNING_TEMPERATURE);
        Ok(Outcome::DONE)
    }

    pub(super) fn get_features(&self, sqe: &Sqe, out: &mut Vec<u8>) -> Result<Outcome, Fault> {
        let command = GetFeatures::parse(sqe)?;
        let class = self.class(command.fid)?;
        if command.uuid_index != 0 {
            return Err(Fault::field(14, 0));
        }
        if class == Class::Namespace {
            self.active(command.nsid)?;
        }
        if command.select == Select::SupportedCapabilities {
            let dw0 = match class {
                Class::Controller => capability::CHANGEABLE,
                Class::ControllerFixed => 0,
                Class::Namespace => capability::CHANGEABLE | capability::NAMESPACE_SPECIFIC,
            };
            return Ok(Outcome::Complete { dw0, dw1: 0 });
        }
        if class == Class::Namespace {
            self.permit_namespace(&*self.active(command.nsid)?)?;
        }
        // What cannot be saved has its default as saved value (section 4.4).
        let now = self.now();
        let features = match command.select {
            Select::Current => self.lock().features.clone(),
            _ => Features::new(0, now),
        };
        match command.fid {
            fid::TIMESTAMP => give(sqe, features.timestamp(now).as_bytes(), out),
            fid::HOST_BEHAVIOR => give(sqe, features.host_behavior.as_bytes(), out),
            // Section 5.1.25.1.28: over Fabrics only the extended, 128-bit form is used.
            fid::HOST_IDENTIFIER if command.cdw11 & bits::EXHID == 0 => Err(Fault::field(11, 0)),
            fid::HOST_IDENTIFIER => give(sqe, &self.host().id, out),
            _ => {
                let dw0 = self.value(&command, &features)?;
                Ok(Outcome::Complete { dw0, dw1: 0 })
            }
        }
    }

    /// The value of a feature that fits the completion.
    fn value(&self, command: &GetFeatures, features: &Features) -> Result<u32, Fault> {
        let nsid = command.nsid;
        Ok(match command.fid {
            fid::ARBITRATION => features.arbitration,
            fid::POWER_MANAGEMENT => features.power,
            fid::TEMPERATURE_THRESHOLD => match temperature_select(command.cdw11)? {
                (0, false) => u32::from(features.temperature_over),
                (0, true) => u32::from(features.temperature_under),
                _ => return Err(Fault::field(11, 16)),
            },
            fid::ERROR_RECOVERY => features.error_recovery.get(&nsid).copied().unwrap_or(0),
            fid::VOLATILE_WRITE_CACHE => bits::WRITE_CACHE_ENABLE,
            fid::NUMBER_OF_QUEUES => number_of_queues(features.io_queues),
            fid::WRITE_ATOMICITY => features.write_atomicity,
            fid::ASYNC_EVENT => features.async_event_configuration,
            fid::KEEP_ALIVE_TIMER => features.kato,
            fid::RESERVATION_NOTIFICATION_MASK => {
                features.reservation_masks.get(&nsid).copied().unwrap_or_default().to_dw0()
            }
            fid::RESERVATION_PERSISTENCE if command.select == Select::Current => {
                u32::from(self.active(nsid)?.reservation.with(crate::reservation::State::persists))
            }
            // Reservation Persistence is off by default; of command set combinations (19h) the
            // first and only one is selected.
            _ => 0,
        })
    }
}

/// `value`, if no bit outside `allowed` is set.
fn checked(value: u32, allowed: u32) -> Result<u32, Fault> {
    match value & !allowed {
        0 => Ok(value),
        bad => Err(Fault::field(11, low8(bad.trailing_zeros().into()))),
    }
}

/// The data of a command as what it is; longer data is cut.
fn typed<T>(data: &[u8]) -> Result<&T, Fault>
where
    T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned,
{
    match T::ref_from_prefix(data) {
        Ok((value, _)) => Ok(value),
        Err(_) => Err(Fault::at(Status::DATA_SGL_LENGTH_INVALID, 8, 0)),
    }
}

/// Returns a feature's data.
fn give(sqe: &Sqe, data: &[u8], out: &mut Vec<u8>) -> Result<Outcome, Fault> {
    prepare(sqe, u32_of(data.len()), out)?;
    window(data, 0, out);
    Ok(Outcome::Data)
}

/// Temperature select, and whether the under temperature threshold is meant.
fn temperature_select(value: u32) -> Result<(u32, bool), Fault> {
    // Bits 24:22 are a hysteresis, which is not offered (TMPTHHA 0); the rest is reserved.
    if value & 0xffc0_0000 != 0 {
        return Err(Fault::field(11, 22));
    }
    match value >> 20 {
        0 => Ok((value >> 16 & 0xf, false)),
        1 => Ok((value >> 16 & 0xf, true)),
        _ => Err(Fault::field(11, 20)),
    }
}

/// Number of Queues (07h): as many as are asked for, up to the limit; of each kind the same,
/// because over Fabrics they come in pairs.
fn set_number_of_queues(features: &mut Features, value: u32) -> Result<Outcome, Fault> {
    let asked = NumberOfQueues::from_raw(value);
    if !asked.is_valid_request() {
        return Err(Fault::field(11, 0));
    }
    // Section 5.1.25.1.5: only before the first I/O queue.
    if features.queues_created {
        return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr().into());
    }
    features.io_queues = (asked.submission.min(asked.completion) + 1).min(IO_QUEUES_MAX);
    Ok(Outcome::Complete { dw0: number_of_queues(features.io_queues), dw1: 0 })
}

/// The completion's dword: both counts 0's based.
fn number_of_queues(count: u16) -> u32 {
    NumberOfQueues { submission: count - 1, completion: count - 1 }.raw()
}

/// Host Behavior Support (16h): booleans, and copy descriptor formats this controller has.
fn set_host_behavior(state: &mut State, behavior: &HostBehavior) -> Result<(), Fault> {
    let booleans = [behavior.acre, behavior.etdas, behavior.lbafee, behavior.hdisns];
    let formats = behavior.cdfe.get();
    // Formats 0h and 1h need no enabling; their bits are reserved.
    let unknown = formats & !(crate::describe::COPY_FORMATS & !0b11);
    if booleans.iter().any(|&value| value > 1) || unknown != 0 {
        return Err(Status::INVALID_FIELD.with_dnr().into());
    }
    state.features.host_behavior = behavior.clone();
    Ok(())
}
