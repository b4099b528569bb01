//! The routes: paths, access and answers.

use super::command::{ReplyShape, Task};
use super::guard;
use super::request::{Method, RequestHead};
use super::response::{self, ContentKind, Framing, HttpStatus};
use super::{Visit, metrics, needs_password, stats};
use crate::acl::guard::may_observe;
use crate::commands::login;
use crate::conn::Conn;
use crate::thread_state::ThreadState;

/// The access to a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Everyone who can connect: probes and Prometheus have no password.
    Open,
    /// Clients with the password. A page: a link from another site is fine.
    Page,
    /// Clients with the password, and only from our own page.
    Console,
    /// Clients with the password: programs.
    Program,
}

/// One path.
pub struct Route {
    path: &'static str,
    /// It takes POST; else GET and HEAD.
    is_post: bool,
    access: Access,
    /// Answers, or leaves a task.
    pub serve: fn(&mut RouteCall<'_>),
}

/// The state that a route may use.
pub struct RouteCall<'a> {
    /// The connection, to whose output the answer is appended.
    pub conn: &'a mut Conn,
    /// The thread.
    pub local: &'a mut ThreadState,
    /// The place for a task.
    pub visit: &'a mut Visit,
    /// The framing of the answer.
    pub framing: Framing,
    /// The whole body.
    pub body: &'a [u8],
}

impl RouteCall<'_> {
    fn answer(&mut self, status: HttpStatus, kind: ContentKind, body: &[u8]) {
        response::write(&mut self.conn.output, self.framing, status, kind, body);
    }
}

const fn get(path: &'static str, access: Access, serve: fn(&mut RouteCall<'_>)) -> Route {
    Route { path, is_post: false, access, serve }
}

const fn post(path: &'static str, access: Access, serve: fn(&mut RouteCall<'_>)) -> Route {
    Route { path, is_post: true, access, serve }
}

/// A script of the console at a path.
macro_rules! script {
    ($path:literal, $file:literal) => {
        get($path, Access::Page, |call| {
            call.answer(HttpStatus::Ok, ContentKind::Script, include_bytes!($file))
        })
    };
}

/// Every path.
const ROUTES: &[Route] = &[
    get("/metrics", Access::Open, |call| {
        let text = metrics::render(call.local.shared, &call.local.live);
        call.answer(HttpStatus::Ok, ContentKind::Metrics, text.as_bytes());
    }),
    get("/healthz", Access::Open, |call| call.answer(HttpStatus::Ok, ContentKind::Text, b"OK\n")),
    get("/readyz", Access::Open, ready),
    get("/primary", Access::Open, |call| has_role(call, AskedRole::Primary)),
    get("/replica", Access::Open, |call| has_role(call, AskedRole::Replica)),
    get("/", Access::Page, |call| call.answer(HttpStatus::Ok, ContentKind::Html, PAGE)),
    get("/console.css", Access::Page, |call| call.answer(HttpStatus::Ok, ContentKind::Css, STYLE)),
    script!("/console.js", "console/console.js"),
    script!("/console/chart.js", "console/chart.js"),
    script!("/console/clients.js", "console/clients.js"),
    script!("/console/cluster.js", "console/cluster.js"),
    script!("/console/group.js", "console/group.js"),
    script!("/console/replication.js", "console/replication.js"),
    script!("/console/diagnose.js", "console/diagnose.js"),
    script!("/console/format.js", "console/format.js"),
    script!("/console/keys.js", "console/keys.js"),
    script!("/console/overview.js", "console/overview.js"),
    script!("/console/page.js", "console/page.js"),
    script!("/console/server.js", "console/server.js"),
    script!("/console/shell.js", "console/shell.js"),
    script!("/console/table.js", "console/table.js"),
    script!("/console/timeline.js", "console/timeline.js"),
    script!("/console/types.js", "console/types.js"),
    script!("/console/values.js", "console/values.js"),
    get("/icon.svg", Access::Page, |call| call.answer(HttpStatus::Ok, ContentKind::Svg, ICON)),
    get("/favicon.ico", Access::Page, |call| call.answer(HttpStatus::Ok, ContentKind::Svg, ICON)),
    get("/api/stats", Access::Console, |call| {
        if !may_observe(call.local, &call.conn.session) {
            return call.answer(
                HttpStatus::Forbidden,
                ContentKind::Text,
                b"this user may not see what others do\n",
            );
        }
        let text = stats::render(call.local.shared, &call.local.live).to_string();
        call.answer(HttpStatus::Ok, ContentKind::Json, text.as_bytes());
    }),
    get("/api/history", Access::Console, |call| {
        let text = stats::history(call.local.shared).to_string();
        call.answer(HttpStatus::Ok, ContentKind::Json, text.as_bytes());
    }),
    post("/api/command", Access::Console, |call| begin(call, ReplyShape::Console)),
    post("/api", Access::Program, |call| begin(call, ReplyShape::Program)),
];

const PAGE: &[u8] = include_bytes!("console/index.html");
const STYLE: &[u8] = include_bytes!("console/console.css");
const ICON: &[u8] = include_bytes!("console/icon.svg");

/// The route of a request.
///
/// Errors: no such path here, or not with this method.
pub fn find(
    local: &ThreadState,
    head: &RequestHead<'_>,
) -> Result<&'static Route, (HttpStatus, &'static str)> {
    let http = &local.live.http;
    let is_served = |route: &Route| match route.access {
        Access::Open => true,
        Access::Page | Access::Console => http.console,
        Access::Program => http.api,
    };
    let found = ROUTES.iter().find(|route| route.path == head.path && is_served(route));
    let Some(route) = found else { return Err((HttpStatus::NotFound, "")) };
    let is_right = match head.method {
        Method::Get | Method::Head => !route.is_post,
        Method::Post => route.is_post,
        Method::Other => false,
    };
    if is_right { Ok(route) } else { Err((HttpStatus::MethodNotAllowed, "")) }
}

/// Admits a request to its route, and logs the connection in with the password of the request.
///
/// Errors: it comes from another site, or without the password.
pub fn admit(
    conn: &mut Conn,
    local: &mut ThreadState,
    head: &RequestHead<'_>,
    route: &Route,
) -> Result<(), (HttpStatus, &'static str)> {
    if route.access == Access::Open {
        return Ok(());
    }
    let has_password = needs_password(local, conn.session.listener);
    guard::check_site(head, route.access == Access::Page, has_password)?;
    if route.access == Access::Console {
        guard::check_api(head)?;
    }
    let login = head.authorization.and_then(guard::credentials);
    // Each request has its own user; the user of an earlier one does not apply.
    let is_in = match login {
        Some((user, password)) => login::try_log_in(local, conn, &user, &password),
        None => login::as_nobody(local, conn),
    };
    if is_in { Ok(()) } else { Err((HttpStatus::Unauthorized, "a user and a password are needed")) }
}

/// 200 once commands are served: the data is loaded, and no shutdown was requested.
fn ready(call: &mut RouteCall<'_>) {
    let shared = call.local.shared;
    if shared.is_stopping.load(std::sync::atomic::Ordering::Relaxed) || shared.snapshots.loading.is_on() {
        return call.answer(HttpStatus::Unavailable, ContentKind::Text, b"loading\n");
    }
    call.answer(HttpStatus::Ok, ContentKind::Text, b"OK\n");
}

/// The parts of a server that load balancers ask about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AskedRole {
    Primary,
    Replica,
}

/// 200 if this server serves in that role now: as the master that may answer, or as a replica that follows one.
fn has_role(call: &mut RouteCall<'_>, role: AskedRole) {
    let shared = call.local.shared;
    let replication = &shared.replication;
    let is_up = !shared.snapshots.loading.is_on();
    let is_it = match role {
        AskedRole::Primary => {
            shared.group.as_ref().map_or(!replication.is_replica(), |group| group.serves(shared))
        }
        AskedRole::Replica => {
            replication.is_replica() && replication.link_is_up() && !call.local.is_in_doubt()
        }
    };
    let (status, text) =
        if is_up && is_it { (HttpStatus::Ok, &b"OK\n"[..]) } else { (HttpStatus::Unavailable, &b"no\n"[..]) };
    call.answer(status, ContentKind::Text, text);
}

fn begin(call: &mut RouteCall<'_>, shape: ReplyShape) {
    match Task::read(call.body, shape, call.framing, call.local.live.dbnum as usize) {
        Ok(task) => call.visit.task = Some(Box::new(task)),
        Err(why) => response::refuse(&mut call.conn.output, call.framing, HttpStatus::BadRequest, &why),
    }
}
