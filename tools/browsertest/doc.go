// Package browsertest has tests of weir's pages in a real browser, Chromium. It is a module of its own, so that no user of
// weir gets the driver of the browser.
//
// With WEIR_SCREENSHOTS=DIRECTORY the tests write pictures of the pages there.
package browsertest
