/** What stands where a page would, for who is not signed in. */
import { useNavigate } from "@tanstack/react-router";
import { useEffect } from "react";

/** Goes to the sign-in, once, and says where to come back to. */
export function SignedOut() {
  const navigate = useNavigate();
  useEffect(() => {
    void navigate({ to: "/sign-in", search: { to: location.pathname + location.search }, replace: true });
  }, [navigate]);
  return null;
}
