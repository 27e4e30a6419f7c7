/** What OpenVLA answers: one array (OpenVLA), a list of them (OFT), or the text "error" for whatever went wrong. */
export { readJsonAction as readAction } from "../payload/json-actions.ts";
