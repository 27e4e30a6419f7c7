/** Every wire keeps the same promises; those whose answers are videos are tried in the slow suite, because each answer starts a decoder. */
import { EVERY_WIRE } from "./every-wire.ts";
import { suiteOver } from "./every-wire-suite.ts";

suiteOver(EVERY_WIRE.filter(({ isVideo }) => !isVideo));
