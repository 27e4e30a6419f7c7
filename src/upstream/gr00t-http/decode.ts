/** What the HTTP form of Isaac-GR00T answers: a map of parts, each an array or a list of rows; "error" for whatever went wrong. */
export { readJsonAction as readAction } from "../payload/json-actions.ts";
