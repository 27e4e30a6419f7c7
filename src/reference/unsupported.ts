/** How a reference model says that it can't answer: never a guess. */

/** The request is outside what the model declares (layout, camera, instruction, action space or horizon). The message is fit for the caller. */
export class UnsupportedObservation extends Error {
  override readonly name = "UnsupportedObservation";
}
